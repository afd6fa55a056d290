package dibsgocron_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/duetest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"
)

const processes = 4

// A host can delay a request by half the interval. A busy host needs a longer interval.
var dueEvery = flag.Duration("due-every", time.Second, "the interval of the jobs of TestModesOfProcesses, with DIBS_LONG=1")

// A processMode is a mode on processes, where requests may be late.
type processMode struct {
	mode
	queues bool // an instance requests the lock when the job's turn comes, which is late
	skips  bool // an instance skips jobs without a request
}

// processModes returns the modes with the shortest and the longest jobs, and those with a queue.
func processModes(interval time.Duration) (all []processMode) {
	for _, m := range modes(interval) {
		covers := m.work > interval // its next due time
		queues := m.name == "singleton, wait" && covers || m.name == "limit, wait" && m.work >= interval/3
		skips := m.name == "limit, reschedule" || m.name == "singleton, reschedule" && covers
		if m.work == time.Millisecond || covers || queues {
			all = append(all, processMode{m, queues, skips})
		}
	}
	return all
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

// wantMode checks a mode's due times. If the mode delays no request, due times do not count if they
// are late, or have a request less, because the host was busy.
func wantMode(t *testing.T, record *duetest.Record, plan duetest.Plan, i int, m processMode) {
	t.Helper()
	counted := record.Of(i)
	within := duetest.Limits{Requests: processes, Apart: plan.Interval / 2, Work: m.work}
	if m.skips {
		within.Requests = 0
	}
	if !m.queues {
		counted = record.Punctual(i, within)
	}
	record.WantEnough(t, i, counted)
	if n := (tally{once: counted.Once, never: counted.Never, more: counted.More}); !m.want(n) {
		t.Errorf("due times: %+v", n)
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
	locks := dibs.New(store, dibs.Timeout(10*time.Second))
	locker := dibsgocron.NewLocker(locks, plan.Interval/2, recorder.Observe())
	for i, m := range processModes(plan.Interval) {
		if err := startMode(recorder, locker, i, m.mode); err != nil {
			return fmt.Errorf("mode %v: %w", m, err)
		}
	}
	time.Sleep(time.Until(plan.End()))
	return nil
}

func startMode(r duetest.Recorder, locker *dibsgocron.Locker, i int, m mode) error {
	s, err := gocron.NewScheduler(append(slices.Clone(m.scheduler), gocron.WithDistributedLocker(locker))...)
	if err != nil {
		return err
	}
	for job := range r.Plan.Jobs {
		task := locker.Task(func(context.Context) error {
			r.Run(i, job)
			time.Sleep(m.work)
			return nil
		})
		options := append(slices.Clone(m.job), gocron.WithName(r.Plan.Name(i, job)), gocron.WithStartAt(gocron.WithStartDateTime(r.Plan.FirstOf(i))))
		if _, err := s.NewJob(gocron.DurationJob(r.Plan.Interval), task, options...); err != nil {
			return err
		}
	}
	s.Start()
	return nil
}
