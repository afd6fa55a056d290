package dibsgocron_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
	"github.com/go-co-op/gocron/v2"
)

func closeElector(t *testing.T, e *dibsgocron.Elector) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// campaign starts an Elector and waits until it leads or queues.
func campaign(t *testing.T, locks *dibs.Client, options ...dibs.Option) *dibsgocron.Elector {
	t.Helper()
	e := dibsgocron.NewElector(locks, "scheduler", options...)
	t.Cleanup(func() { _ = e.Close() }) // a second Close is harmless
	synctest.Wait()
	return e
}

func leads(e *dibsgocron.Elector) bool { return e.IsLeader(context.Background()) == nil }

func wantLeads(t *testing.T, e *dibsgocron.Elector, want bool) {
	t.Helper()
	synctest.Wait()
	if err := e.IsLeader(t.Context()); (err == nil) != want {
		t.Errorf("IsLeader: %v, want leader = %v", err, want)
	}
}

// The leader runs all jobs. After its Close the next candidate does, at once.
func TestLeaderRunsTheJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var runs [2]atomic.Int64
		var electors [2]*dibsgocron.Elector
		for i := range electors {
			electors[i] = campaign(t, open(t, store))
			everyMinute(t, gocron.WithDistributedElector(electors[i]), electors[i].Task(func(ctx context.Context) error {
				if carried.Fence(ctx) == 0 {
					t.Error("the context has no fence")
				}
				runs[i].Add(1)
				return nil
			}))
		}
		time.Sleep(10*time.Minute + time.Second)
		if a, b := runs[0].Load(), runs[1].Load(); a != 10 || b != 0 {
			t.Errorf("%d and %d runs, want 10 and 0", a, b)
		}
		closeElector(t, electors[0])
		wantLeads(t, electors[0], false)
		wantLeads(t, electors[1], true)
		time.Sleep(10 * time.Minute)
		if a, b := runs[0].Load(), runs[1].Load(); a != 10 || b != 10 {
			t.Errorf("%d and %d runs, want 10 each", a, b)
		}
	})
}

// A leader that cannot reach the store should stop leading before another leads. A leader that was
// cut off should lead again later.
func TestNeverTwoLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		cut := newFragile(store)
		first := campaign(t, open(t, cut), dibs.TTL(10*time.Second))
		second := campaign(t, open(t, store), dibs.TTL(10*time.Second))
		wantLeads(t, first, true)
		cut.down.Store(true)
		for since := time.Now(); !leads(second); time.Sleep(time.Millisecond) {
			if time.Since(since) > 11*time.Second {
				t.Fatal("no leader within the TTL")
			}
		}
		if leads(first) {
			t.Error("two leaders")
		}
		wantError(t, first.IsLeader(t.Context()), dibs.ErrLost)
		cut.down.Store(false)
		time.Sleep(10 * time.Second)
		wantLeads(t, first, false)
		closeElector(t, second)
		wantLeads(t, first, true)
	})
}

// IsLeader's error should include the reason, and the leader.
func TestNotLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		campaign(t, open(t, store), dibs.Label("blue"))
		follower := campaign(t, open(t, store))
		host, _ := os.Hostname()
		want := fmt.Sprintf("%s:%d:blue", host, os.Getpid())
		if err := follower.IsLeader(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to have %s", err, want)
		}
	})
}

func TestFailedCampaigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := newFragile(memstore.New())
		down.down.Store(true)
		closed := dibs.New(memstore.New())
		closed.Close()
		for name, test := range map[string]struct {
			elector *dibsgocron.Elector
			want    error // from IsLeader
			ended   error // from Close
		}{
			"bad name":    {dibsgocron.NewElector(open(t, memstore.New()), ""), dibs.ErrInvalid, dibs.ErrInvalid},
			"bad option":  {dibsgocron.NewElector(open(t, memstore.New()), "n", dibs.TTL(-1)), dibs.ErrInvalid, dibs.ErrInvalid},
			"closed":      {dibsgocron.NewElector(closed, "n"), dibs.ErrClosed, dibs.ErrClosed},
			"unavailable": {dibsgocron.NewElector(open(t, down), "n"), dibs.ErrUnavailable, nil},
		} {
			time.Sleep(10 * time.Second)
			wantError(t, test.elector.IsLeader(t.Context()), test.want)
			if err := test.elector.Close(); !errors.Is(err, test.ended) {
				t.Errorf("%s: Close returns %v, want %v", name, err, test.ended)
			}
		}
	})
}

// After a Resign nobody leads until the term's tasks have returned.
func TestResignWaitsForTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := open(t, store)
		first := campaign(t, locks)
		second := campaign(t, open(t, store))
		began, ended, release := make(chan bool, 1), make(chan error, 1), make(chan bool)
		everyMinute(t, gocron.WithDistributedElector(first), first.Task(func(ctx context.Context) error {
			began <- true
			<-ctx.Done()
			ended <- context.Cause(ctx)
			<-release
			return nil
		}))
		<-began
		if !first.Resign() {
			t.Fatal("no term to resign from")
		}
		wantError(t, <-ended, dibs.ErrResigned)
		wantLeads(t, first, false)
		wantLeads(t, second, false)
		close(release)
		wantLeads(t, second, true)
	})
}

// A task that begins after the term's end does not run.
func TestTaskOfAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		campaign(t, open(t, store))
		follower := campaign(t, open(t, store))
		_, o := everyMinute(t, gocron.WithLocation(time.UTC), // no elector
			follower.Task(func(context.Context) error {
				t.Error("a follower ran the task")
				return nil
			}))
		if err := <-o.failed; !strings.Contains(err.Error(), "not the leader") {
			t.Errorf("error %v, want that it is not the leader", err)
		}
	})
}

// A task's context should end when the term is lost.
func TestTaskEndsWithItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := newFragile(memstore.New())
		elector := campaign(t, open(t, cut), dibs.TTL(10*time.Second))
		began := make(chan bool, 1)
		_, o := everyMinute(t, gocron.WithDistributedElector(elector), elector.Task(func(ctx context.Context) error {
			began <- true
			return untilEnd(ctx)
		}))
		<-began
		cut.down.Store(true)
		wantError(t, <-o.failed, dibs.ErrLost)
		cut.down.Store(false)
	})
}
