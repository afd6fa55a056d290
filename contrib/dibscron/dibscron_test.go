package dibscron_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscron"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
	"github.com/robfig/cron/v3"
)

// entry is a logger's received message.
type entry struct {
	err     error // nil at Info level
	message string
	values  []any
}

// log is a cron.Logger that keeps the messages about a Locker's jobs.
type log chan entry

func newLog() log { return make(log, 10_000) }

func (l log) Info(message string, values ...any) {
	if strings.HasPrefix(message, "job") {
		l <- entry{nil, message, values}
	}
}

func (l log) Error(err error, message string, values ...any) { l <- entry{err, message, values} }

func open(t testing.TB, store driver.Store, options ...dibs.Option) *dibs.Client {
	locks := dibs.New(store, options...)
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// start starts a schedule with a single job, which is due each minute. The test stops it.
func start(t *testing.T, job cron.Job) {
	t.Helper()
	schedule := cron.New(cron.WithLogger(cron.DiscardLogger))
	if _, err := schedule.AddJob("* * * * *", job); err != nil {
		t.Fatal(err)
	}
	schedule.Start()
	t.Cleanup(func() { <-schedule.Stop().Done() })
}

func wantEntry(t *testing.T, l log, message string, err error) entry {
	t.Helper()
	e := <-l
	if e.message != message || !errors.Is(e.err, err) {
		t.Errorf("logged %q with error %v, want %q with %v", e.message, e.err, message, err)
	}
	return e
}

func mustNotRun(context.Context) error { return errors.New("the job ran without its lock") }

// runsPerMinute runs a job for 1 ms on five instances during an hour. Their clocks differ by up to
// spread. It returns the number of minutes for each number of runs.
func runsPerMinute(t *testing.T, spread, minHold time.Duration) map[int]int {
	var mu sync.Mutex
	runs := map[int]int{}
	store, begin := memstore.New(), time.Now()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 5 {
		locker := dibscron.NewLocker(t.Context(), open(t, store), newLog())
		job := locker.Job("report", minHold, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			runs[int(time.Since(begin)/time.Minute)]++ // a clock is late by less than a minute
			time.Sleep(time.Millisecond)
			return nil
		})
		start(t, cron.FuncJob(func() {
			mu.Lock()
			late := time.Duration(random.Int64N(int64(spread)))
			mu.Unlock()
			time.Sleep(late)
			job.Run()
		}))
	}
	time.Sleep(time.Hour + 59*time.Second)
	minutes := map[int]int{}
	mu.Lock()
	defer mu.Unlock()
	for minute := 1; minute <= 60; minute++ {
		minutes[runs[minute]]++
	}
	return minutes
}

func TestExactlyOnce(t *testing.T) {
	const interval, spread = time.Minute, 10 * time.Second
	for _, minHold := range []time.Duration{spread, interval / 2, interval - spread} {
		t.Run(minHold.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if minutes := runsPerMinute(t, spread, minHold); minutes[1] != 60 {
					t.Errorf("minutes by number of runs: %v, want 60 with one", minutes)
				}
			})
		})
	}
}

// The doc comment's bound is needed.
func TestMinHoldBelowTheSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if minutes := runsPerMinute(t, 10*time.Second, 10*time.Millisecond); minutes[1] == 60 {
			t.Errorf("minutes by number of runs: %v, want some with more than one", minutes)
		}
	})
}

// A skipped run should be logged with the process that has it.
func TestSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, logged := memstore.New(), newLog()
		if _, err := open(t, store).Mutex("report").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, dibscron.NewLocker(t.Context(), open(t, store), logged).Job("report", 30*time.Second, mustNotRun))
		e := wantEntry(t, logged, "job skipped", nil)
		reason, _ := e.values[3].(error)
		if !errors.Is(reason, dibs.ErrBusy) || !strings.Contains(reason.Error(), strconv.Itoa(os.Getpid())) {
			t.Errorf("values %v, want the process that holds the lock", e.values)
		}
	})
}

// silent is an unresponsive store.
type silent struct{ *driver.Full }

func (silent) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	ctx, cancel := context.WithDeadline(ctx, r.Until)
	defer cancel()
	<-ctx.Done()
	return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Cause: ctx.Err()}
}

func TestErrors(t *testing.T) {
	broken := errors.New("no paper")
	for name, test := range map[string]struct {
		store   driver.Store
		minHold time.Duration
		fn      func(context.Context) error
		message string
		err     error
	}{
		"of the job":   {memstore.New(), 30 * time.Second, func(context.Context) error { return broken }, "job failed", broken},
		"of the store": {silent{driver.Complete(memstore.New())}, 30 * time.Second, mustNotRun, "job did not run", dibs.ErrUnavailable},
		"minHold 0":    {memstore.New(), 0, mustNotRun, "job did not run", dibs.ErrInvalid},
		"nil function": {memstore.New(), 30 * time.Second, nil, "job did not run", dibs.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logged := newLog()
				start(t, dibscron.NewLocker(t.Context(), open(t, test.store), logged).Job("report", test.minHold, test.fn))
				wantEntry(t, logged, test.message, test.err)
			})
		})
	}
}

// A run's context ends when its lock is lost.
func TestRunEndsWithItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, logged := open(t, memstore.New()), newLog()
		began := make(chan uint64, 1)
		start(t, dibscron.NewLocker(t.Context(), locks, logged).Job("report", 30*time.Second, func(ctx context.Context) error {
			began <- carried.Fence(ctx)
			<-ctx.Done()
			return nil
		}))
		if revoked, err := locks.Revoke(t.Context(), "report", dibs.Holder{Fence: <-began}, "maintenance"); !revoked || err != nil {
			t.Fatalf("revoke: %v, %v", revoked, err)
		}
		wantEntry(t, logged, "job failed", dibs.ErrLost)
	})
}

// A run's context should end with the Locker's, and then no run should begin.
func TestRunEndsWithTheLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		logged, began := newLog(), make(chan bool, 2)
		start(t, dibscron.NewLocker(ctx, open(t, memstore.New()), logged).Job("report", 30*time.Second, func(ctx context.Context) error {
			began <- true
			<-ctx.Done()
			return ctx.Err()
		}))
		<-began
		cancel()
		wantEntry(t, logged, "job failed", context.Canceled)
		wantEntry(t, logged, "job did not run", context.Canceled)
	})
}

// A wrapped job keeps its place in a chain: a panic releases the lock and reaches Recover.
func TestWrapper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := newLog()
		locker := dibscron.NewLocker(t.Context(), open(t, memstore.New()), logged)
		ran := make(chan bool, 1)
		start(t, cron.NewChain(cron.Recover(logged), locker.Wrapper("report", 30*time.Second)).Then(cron.FuncJob(func() {
			ran <- true
			panic("no paper")
		})))
		for range 2 {
			<-ran
			if e := <-logged; e.message != "panic" {
				t.Errorf("logged %+v, want the panic", e)
			}
		}
	})
}

// A wrapper for several jobs should run only the first.
func TestWrapperOfTwoJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := newLog()
		locker := dibscron.NewLocker(t.Context(), open(t, memstore.New()), logged)
		chain := cron.NewChain(locker.Wrapper("report", 30*time.Second))
		ran := make(chan bool, 1)
		start(t, chain.Then(cron.FuncJob(func() { ran <- true })))
		start(t, chain.Then(cron.FuncJob(func() { t.Error("the second job ran with the lock of the first") })))
		<-ran
		wantEntry(t, logged, "job did not run", dibs.ErrInvalid)
	})
}
