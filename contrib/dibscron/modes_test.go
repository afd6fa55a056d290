package dibscron_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/contrib/dibscron"
	"github.com/dibslock/dibs/memstore"
	"github.com/robfig/cron/v3"
)

// A mode is a cron chain with jobs of a certain duration, and their effect on the due times, as in
// docs/schedulers.md.
type mode struct {
	name string
	wrap cron.JobWrapper
	work time.Duration          // for each run
	want func(map[int]int) bool // due times by their number of runs
}

func (m mode) String() string { return fmt.Sprint(m.name, "/", m.work) }

// modes returns the modes for 20 jobs due at the same times on four instances. minHold is half the
// interval.
func modes(interval time.Duration, delay cron.JobWrapper) []mode {
	short := time.Millisecond
	middle := interval * 2 / 3 // longer than minHold
	long := interval + interval/6
	none := func(job cron.Job) cron.Job { return job }
	skip := cron.SkipIfStillRunning(cron.DiscardLogger)
	return []mode{
		{"none", none, short, allOnce},
		{"none", none, middle, allOnce},
		{"none", none, long, everySecond},
		{"skip", skip, short, allOnce},
		{"skip", skip, middle, allOnce},
		{"skip", skip, long, everySecond},
		{"delay", delay, short, allOnce},
		{"delay", delay, middle, allOnce},
		{"delay", delay, long, someLost},
	}
}

// The modes in virtual time.
func TestModes(t *testing.T) {
	for _, m := range modes(time.Minute, delay) {
		t.Run(m.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ticks := 20
				if os.Getenv("DIBS_LONG") == "1" {
					ticks = 500
				}
				runs := runsPerDueTime(t, ticks, m.wrap, m.work)
				if !m.want(runs) {
					t.Errorf("due times by number of runs: %v", runs)
				}
				t.Logf("FIGURE due times by number of runs: %v", runs)
			})
		})
	}
}

// delay is cron.DelayIfStillRunning with a channel instead of a mutex. Virtual time would stop at a
// mutex.
func delay(job cron.Job) cron.Job {
	turn := make(chan struct{}, 1)
	return cron.FuncJob(func() {
		turn <- struct{}{}
		defer func() { <-turn }()
		job.Run()
	})
}

func allOnce(runs map[int]int) bool     { return runs[1] > 0 && len(runs) == 1 }
func everySecond(runs map[int]int) bool { return runs[0] == runs[1] && len(runs) == 2 }
func someLost(runs map[int]int) bool    { return runs[0] > 0 && runs[1] > 0 && len(runs) == 2 }

// runsPerDueTime returns how many due times had how many runs. A run counts for the last due time
// before its start.
func runsPerDueTime(t *testing.T, ticks int, wrap cron.JobWrapper, work time.Duration) map[int]int {
	const jobs, instances = 20, 4
	var mu sync.Mutex
	runs := map[[2]int]int{}
	store, begin := memstore.New(), time.Now()
	for range instances {
		locker := dibscron.NewLocker(t.Context(), open(t, store), newLog())
		for job := range jobs {
			start(t, wrap(locker.Job(fmt.Sprint("job ", job), 30*time.Second, func(context.Context) error {
				mu.Lock()
				runs[[2]int{job, int(time.Since(begin) / time.Minute)}]++
				mu.Unlock()
				time.Sleep(work)
				return nil
			})))
		}
	}
	time.Sleep(time.Duration(ticks+1)*time.Minute + 30*time.Second)
	mu.Lock()
	defer mu.Unlock()
	tally := map[int]int{}
	for job := range jobs {
		for tick := 1; tick <= ticks; tick++ {
			tally[runs[[2]int{job, tick}]]++
		}
	}
	return tally
}
