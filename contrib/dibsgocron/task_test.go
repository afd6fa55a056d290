package dibsgocron_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// outcomes receives gocron's reports about a job's runs.
type outcomes struct{ skipped, failed chan error }

// everyMinute starts a scheduler with a single job, which is due each minute.
func everyMinute(t *testing.T, option gocron.SchedulerOption, task gocron.Task, options ...gocron.JobOption) (gocron.Scheduler, outcomes) {
	t.Helper()
	s, err := gocron.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	o := outcomes{make(chan error, 100), make(chan error, 100)}
	_, err = s.NewJob(gocron.CronJob("* * * * *", false), task, append(options, gocron.WithEventListeners(
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { o.skipped <- err }),
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { o.failed <- err })))...)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { shutdown(t, s) })
	return s, o
}

func shutdown(t *testing.T, s gocron.Scheduler) {
	t.Helper()
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// untilEnd is work that ends with its context.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A task's context ends when its lock is lost, and gocron receives the loss.
func TestTaskEndsWithItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := open(t, memstore.New())
		locker := dibsgocron.NewLocker(locks, 30*time.Second)
		began, ended := make(chan uint64, 1), make(chan error, 1)
		_, o := everyMinute(t, gocron.WithDistributedLocker(locker), locker.Task(func(ctx context.Context) error {
			began <- carried.Fence(ctx)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		}), gocron.WithName("report"))

		fence := <-began
		revoked, err := locks.Revoke(t.Context(), "report", dibs.Holder{Fence: fence}, "maintenance")
		if !revoked || err != nil {
			t.Fatalf("revoke: %v, %v", revoked, err)
		}
		wantError(t, <-ended, dibs.ErrLost)
		wantError(t, <-o.failed, dibs.ErrLost)
	})
}

// A task's context should also end when gocron ends the job. It should contain the values in the
// job's context.
func TestTaskEndsWithItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		locker := dibsgocron.NewLocker(open(t, memstore.New()), 30*time.Second)
		began, ended := make(chan any, 1), make(chan error, 1)
		s, _ := everyMinute(t, gocron.WithDistributedLocker(locker), locker.Task(func(ctx context.Context) error {
			began <- ctx.Value(key{})
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		}), gocron.WithName("report"), gocron.WithContext(context.WithValue(t.Context(), key{}, "value")))
		if value := <-began; value != "value" {
			t.Errorf("value %v, want that of the job's context", value)
		}
		shutdown(t, s)
		wantError(t, <-ended, context.Canceled)
	})
}

// A run that continues after its loss should not disturb the next, which has its own lock.
func TestRunAfterALostOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := open(t, memstore.New())
		locker := dibsgocron.NewLocker(locks, 30*time.Second)
		began := make(chan context.Context, 10)
		release := make(chan struct{})
		everyMinute(t, gocron.WithDistributedLocker(locker), locker.Task(func(ctx context.Context) error {
			began <- ctx
			<-release
			return nil
		}), gocron.WithName("report"))
		first := <-began
		if _, err := locks.Revoke(t.Context(), "report", dibs.Holder{Fence: carried.Fence(first)}, ""); err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		second := <-began
		if carried.Fence(second) <= carried.Fence(first) || second.Err() != nil {
			t.Errorf("fences %d, %d and context error %v, want a larger fence and none", carried.Fence(first), carried.Fence(second), second.Err())
		}
		close(release)
	})
}

func TestTaskWithoutItsLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := open(t, memstore.New())
		used, other := dibsgocron.NewLocker(locks, 30*time.Second), dibsgocron.NewLocker(locks, 30*time.Second)
		_, o := everyMinute(t, gocron.WithDistributedLocker(used), other.Task(func(context.Context) error {
			t.Error("the task ran without a lock")
			return nil
		}), gocron.WithName("report"))
		wantError(t, <-o.failed, dibs.ErrInvalid)
	})
}

func TestNilTask(t *testing.T) {
	locks := open(t, memstore.New())
	elector := dibsgocron.NewElector(locks, "scheduler")
	defer closeElector(t, elector)
	s, err := gocron.NewScheduler()
	if err != nil {
		t.Fatal(err)
	}
	defer shutdown(t, s)
	for _, task := range []gocron.Task{dibsgocron.NewLocker(locks, time.Second).Task(nil), elector.Task(nil)} {
		_, err := s.NewJob(gocron.DurationJob(time.Minute), task)
		wantError(t, err, gocron.ErrNewJobTaskNotFunc)
	}
}

func named() {}

type worker struct{}

func (worker) work() {}

func generic[T any]() {}

// Names generated by gocron are rejected if they may not be unique.
func TestGeneratedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := dibsgocron.NewLocker(open(t, memstore.New()), 30*time.Second)
		for name, test := range map[string]struct {
			task  gocron.Task
			named bool // by gocron.WithName
			runs  bool
		}{
			"function":         {task: gocron.NewTask(named), runs: true},
			"function literal": {task: gocron.NewTask(func() {})},
			"method value":     {task: gocron.NewTask(worker{}.work)},
			"generic function": {task: gocron.NewTask(generic[int])},
			"Task":             {task: locker.Task(func(context.Context) error { return nil })},
			"named Task":       {task: locker.Task(func(context.Context) error { return nil }), named: true, runs: true},
		} {
			ran := make(chan error, 1)
			options := []gocron.JobOption{gocron.WithEventListeners(gocron.AfterJobRuns(func(uuid.UUID, string) { ran <- nil }))}
			if test.named {
				options = append(options, gocron.WithName("report"))
			}
			s, o := everyMinute(t, gocron.WithDistributedLocker(locker), test.task, options...)
			select {
			case <-ran:
				if !test.runs {
					t.Errorf("%s: ran, want ErrInvalid", name)
				}
			case err := <-o.skipped:
				if test.runs || !errors.Is(err, dibs.ErrInvalid) {
					t.Errorf("%s: error %v", name, err)
				}
			}
			shutdown(t, s)
		}
	})
}

// gocron skips the run in each case, and AfterLockError receives the reason.
func TestLockErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, down := memstore.New(), newFragile(memstore.New())
		down.down.Store(true)
		if _, err := open(t, store).Mutex("report").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			locker *dibsgocron.Locker
			want   error
		}{
			"busy":        {dibsgocron.NewLocker(open(t, store), 30*time.Second), dibs.ErrBusy},
			"unavailable": {dibsgocron.NewLocker(open(t, down), 30*time.Second), dibs.ErrUnavailable},
			"no minHold":  {dibsgocron.NewLocker(open(t, store), 0), dibs.ErrInvalid},
			"bad option":  {dibsgocron.NewLocker(open(t, store), time.Second, dibs.TTL(-1)), dibs.ErrInvalid},
			"MinHold":     {dibsgocron.NewLocker(open(t, store), time.Second, dibs.MinHold(time.Minute)), dibs.ErrInvalid},
			"Wait":        {dibsgocron.NewLocker(open(t, store), time.Second, dibs.TTL(time.Minute), dibs.Wait(time.Minute)), dibs.ErrInvalid},
			"Attempts":    {dibsgocron.NewLocker(open(t, store), time.Second, dibs.Attempts(3, time.Second)), dibs.ErrInvalid},
			"OwnerToken":  {dibsgocron.NewLocker(open(t, store), time.Second, dibs.OwnerToken("job-7")), dibs.ErrInvalid},
		} {
			s, o := everyMinute(t, gocron.WithDistributedLocker(test.locker), gocron.NewTask(func() { t.Errorf("%s: ran", name) }), gocron.WithName("report"))
			wantError(t, <-o.skipped, test.want)
			synctest.Wait() // gocron may wait for a run that has called its listeners and is not over
			shutdown(t, s)
		}
	})
}
