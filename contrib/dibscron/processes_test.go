package dibscron_test

import (
	"context"
	"flag"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscron"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/duetest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
)

const processes = 4

// A host can delay a request by half the interval. A busy host needs a longer interval.
var dueEvery = flag.Duration("due-every", time.Second, "the interval of the jobs of TestModesOfProcesses, with DIBS_LONG=1")

// processModes returns the modes with the shortest and the longest jobs.
func processModes(interval time.Duration) []mode {
	return slices.DeleteFunc(modes(interval, cron.DelayIfStillRunning(cron.DiscardLogger)), func(m mode) bool {
		return time.Millisecond < m.work && m.work < interval
	})
}

func processPlan(first time.Time, interval time.Duration) duetest.Plan {
	return duetest.Plan{First: first, Interval: interval, Modes: len(processModes(interval)), Jobs: 20, Ticks: 500}
}

// The modes on four processes and a Redis server, all at once.
func TestModesOfProcesses(t *testing.T) {
	if !redistest.Long() {
		t.Skip("takes 8 minutes: DIBS_LONG=1 enables it")
	}
	t.Parallel()
	server := redistest.Start(t)
	plan := processPlan(time.Now().Add(10*time.Second), *dueEvery)
	record := duetest.Run(t, "modes", server.Addr(), processes, plan)
	for i, m := range processModes(plan.Interval) {
		t.Run(m.String(), func(t *testing.T) { wantMode(t, record, plan, i, m) })
	}
}

// wantMode checks a mode's due times. Due times do not count if they are late, or have a request
// less, because the host was busy. If runs are longer than the interval, the chains themselves
// delay requests or leave them out.
func wantMode(t *testing.T, record *duetest.Record, plan duetest.Plan, i int, m mode) {
	t.Helper()
	counted := record.Of(i)
	covers := m.work > plan.Interval
	if !covers {
		counted = record.Punctual(i, duetest.Limits{Requests: processes, Apart: plan.Interval / 2, Work: m.work})
	}
	record.WantEnough(t, i, counted)
	wanted := m.want(counted.ByRuns())
	if covers {
		wanted = someLost(counted.ByRuns()) // as many as by a plan only if no timer is late
	}
	if !wanted {
		t.Errorf("due times: %+v", counted)
	}
}

// modesChild runs all modes.
func modesChild(out io.Writer, args []string) error {
	server, first, interval, err := duetest.ReadArguments(args)
	if err != nil {
		return err
	}
	plan := processPlan(first, interval)
	recorder := duetest.Recorder{Plan: plan, Out: out}
	store := goredisstore.New(redis.NewClient(&redis.Options{Addr: server}))
	locker := dibscron.NewLocker(context.Background(), dibs.New(store, dibs.Timeout(10*time.Second)), printer{io.Discard})
	schedule := cron.New(cron.WithLogger(cron.DiscardLogger))
	for i, m := range processModes(interval) {
		for job := range plan.Jobs {
			run := func(context.Context) error {
				recorder.Run(i, job)
				time.Sleep(m.work)
				return nil
			}
			locked := locker.Job(plan.Name(i, job), interval/2, run, recorder.Observe())
			schedule.Schedule(dueTimes{plan, i}, m.wrap(locked))
		}
	}
	schedule.Start()
	time.Sleep(time.Until(plan.End()))
	return nil
}

// dueTimes is a cron.Schedule with an interval that can be shorter than a second.
type dueTimes struct {
	plan duetest.Plan
	mode int
}

func (d dueTimes) Next(now time.Time) time.Time { return d.plan.Next(d.mode, now) }
