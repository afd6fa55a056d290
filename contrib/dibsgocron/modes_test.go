package dibsgocron_test

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/memstore"
	"github.com/go-co-op/gocron/v2"
)

// A mode is a gocron mode with jobs of a certain duration, and their effect on the due times, as in
// docs/schedulers.md.
type mode struct {
	name      string
	scheduler []gocron.SchedulerOption
	job       []gocron.JobOption
	work      time.Duration // for each run
	want      func(tally) bool
}

func (m mode) String() string { return fmt.Sprint(m.name, "/", m.work) }

func allOnce(n tally) bool     { return n.once > 0 && n.never == 0 && n.more == 0 }
func someSkipped(n tally) bool { return n.once > 0 && n.never > 0 && n.more == 0 }
func someAgain(n tally) bool   { return n.more > 0 }

// modes returns the modes for 20 jobs due at the same times on four instances. minHold is half the
// interval.
func modes(interval time.Duration) (all []mode) {
	job := func(o gocron.JobOption) []gocron.JobOption { return []gocron.JobOption{o} }
	limit := func(mode gocron.LimitMode) []gocron.SchedulerOption {
		return []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, mode)}
	}
	works := [4]time.Duration{
		time.Millisecond,
		interval / 15,
		interval / 3, // with one at a time, an instance is busy for longer than minHold
		interval + interval/6,
	}
	add := func(m mode, want [4]func(tally) bool) {
		for i, work := range works {
			m.work, m.want = work, want[i]
			all = append(all, m)
		}
	}
	add(mode{name: "none"},
		[4]func(tally) bool{allOnce, allOnce, allOnce, someSkipped})
	add(mode{name: "singleton, reschedule", job: job(gocron.WithSingletonMode(gocron.LimitModeReschedule))},
		[4]func(tally) bool{allOnce, allOnce, allOnce, someSkipped})
	add(mode{name: "singleton, wait", job: job(gocron.WithSingletonMode(gocron.LimitModeWait))},
		[4]func(tally) bool{allOnce, allOnce, allOnce, someSkipped})
	add(mode{name: "limit, reschedule", scheduler: limit(gocron.LimitModeReschedule)},
		[4]func(tally) bool{someSkipped, someSkipped, someSkipped, someSkipped})
	add(mode{name: "limit, wait", scheduler: limit(gocron.LimitModeWait)},
		[4]func(tally) bool{allOnce, allOnce, someAgain, someSkipped})
	return all
}

// The modes in virtual time.
func TestModes(t *testing.T) {
	const interval = time.Minute
	for _, m := range modes(interval) {
		t.Run(m.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fleet{
					interval: interval, ahead: 10 * time.Millisecond, jobs: 20, together: true, ticks: 20, more: 1, work: m.work,
					scheduler: m.scheduler, job: m.job,
				}
				if os.Getenv("DIBS_LONG") == "1" {
					f.ticks = 500
				}
				f.run(t, lockers(t, 4, memstore.New(), interval/2))
				if n := f.tally(); !m.want(n) {
					t.Errorf("due times: %+v, the latest request %v after its due time", n, f.latest)
				} else {
					t.Logf("FIGURE due times: %+v, the latest request %v after its due time", n, f.latest)
				}
			})
		})
	}
}
