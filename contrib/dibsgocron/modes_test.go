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

// What the modes of gocron do with the due times, as docs/schedulers.md has it. Here 20 jobs are due
// at the same times on four instances. minHold is half the interval.
func TestModes(t *testing.T) {
	const (
		short   = time.Millisecond
		seconds = 4 * time.Second
		queued  = 20 * time.Second // with one at a time, an instance is busy for longer than minHold
		long    = 70 * time.Second // longer than the interval
	)
	allOnce := func(n tally) bool { return n.never == 0 && n.more == 0 }
	someSkipped := func(n tally) bool { return n.once > 0 && n.never > 0 && n.more == 0 }
	someAgain := func(n tally) bool { return n.more > 0 }
	job := func(o gocron.JobOption) []gocron.JobOption { return []gocron.JobOption{o} }
	scheduler := func(o gocron.SchedulerOption) []gocron.SchedulerOption { return []gocron.SchedulerOption{o} }

	for _, mode := range []struct {
		name      string
		scheduler []gocron.SchedulerOption
		job       []gocron.JobOption
		want      map[time.Duration]func(tally) bool // by the work of a run
	}{
		{
			name: "none",
			want: map[time.Duration]func(tally) bool{short: allOnce, seconds: allOnce, queued: allOnce, long: someSkipped},
		}, {
			name: "singleton, reschedule", job: job(gocron.WithSingletonMode(gocron.LimitModeReschedule)),
			want: map[time.Duration]func(tally) bool{short: allOnce, seconds: allOnce, queued: allOnce, long: someSkipped},
		}, {
			name: "singleton, wait", job: job(gocron.WithSingletonMode(gocron.LimitModeWait)),
			want: map[time.Duration]func(tally) bool{short: allOnce, seconds: allOnce, queued: allOnce, long: someSkipped},
		}, {
			name: "limit, reschedule", scheduler: scheduler(gocron.WithLimitConcurrentJobs(1, gocron.LimitModeReschedule)),
			want: map[time.Duration]func(tally) bool{short: someSkipped, seconds: someSkipped, queued: someSkipped, long: someSkipped},
		}, {
			name: "limit, wait", scheduler: scheduler(gocron.WithLimitConcurrentJobs(1, gocron.LimitModeWait)),
			want: map[time.Duration]func(tally) bool{short: allOnce, seconds: allOnce, queued: someAgain, long: someSkipped},
		},
	} {
		for work, want := range mode.want {
			t.Run(fmt.Sprint(mode.name, "/", work), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := fleet{
						interval: time.Minute, ahead: 10 * time.Millisecond, jobs: 20, together: true, ticks: 20, more: 1, work: work,
						scheduler: mode.scheduler, job: mode.job,
					}
					if os.Getenv("DIBS_LONG") == "1" {
						f.ticks = 500
					}
					f.run(t, lockers(t, 4, memstore.New(), f.interval/2))
					if n := f.tally(); !want(n) {
						t.Errorf("due times: %+v, the latest request %v after its due time", n, f.latest)
					} else {
						t.Logf("FIGURE due times: %+v, the latest request %v after its due time", n, f.latest)
					}
				})
			})
		}
	}
}
