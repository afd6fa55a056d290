package dibs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A farStore acquires names separately, and answers each request after a round trip.
type farStore struct {
	*driver.Full
	trip time.Duration
}

func (s farStore) Groups(names []string) (groups [][]string) {
	for _, name := range names {
		groups = append(groups, []string{name})
	}
	return groups
}

func (s farStore) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	time.Sleep(s.trip / 2)
	defer time.Sleep(s.trip / 2)
	return s.Full.Acquire(ctx, r)
}

func (s farStore) Extend(ctx context.Context, r []driver.ExtendRequest) []error {
	time.Sleep(s.trip / 2)
	defer time.Sleep(s.trip / 2)
	return s.Full.Extend(ctx, r)
}

// A multi-lock whose first name is lost each time before it gets the second keeps its call's
// limits.
func TestNamesLostAgainAndAgain(t *testing.T) {
	for what, lock := range map[string]func(ctx context.Context, m *dibs.MultiMutex) (*dibs.Lease, error){
		"try": func(ctx context.Context, m *dibs.MultiMutex) (*dibs.Lease, error) {
			return m.TryLock(ctx, dibs.TTL(500*time.Millisecond))
		},
		"wait": func(ctx context.Context, m *dibs.MultiMutex) (*dibs.Lease, error) {
			return m.Lock(ctx, dibs.TTL(500*time.Millisecond), dibs.Wait(time.Second))
		},
		"attempts": func(ctx context.Context, m *dibs.MultiMutex) (*dibs.Lease, error) {
			return m.Lock(ctx, dibs.TTL(500*time.Millisecond), dibs.Attempts(2, time.Millisecond))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := dibs.New(farStore{driver.Complete(memstore.New()), 300 * time.Millisecond})
				defer locks.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				_, err := lock(ctx, locks.All([]string{"a", "b"}))
				if took := time.Since(begin); took > 3*time.Second || !errors.Is(err, dibs.ErrUnavailable) && !errors.Is(err, dibs.ErrBusy) {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

// A lostStore loses the first name while the request for the second is in flight.
type lostStore struct{ farStore }

func (s lostStore) Extend(_ context.Context, r []driver.ExtendRequest) []error {
	time.Sleep(s.trip / 2)
	errs := make([]error, len(r))
	for i := range errs {
		errs[i] = driver.ErrLost
	}
	return errs
}

// The hooks for a lost name, and for the next acquired name, share no memory without a lock.
func TestHooksOfALostName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lostStore{farStore{driver.Complete(memstore.New()), 100 * time.Millisecond}}
		locks := dibs.New(store, dibs.Observe(dibs.Hooks{Lost: func(_ context.Context, l dibs.Lost) { t.Errorf("%+v, although nobody has received a lease", l) }}))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := locks.All([]string{"a", "b"}).Lock(ctx, dibs.TTL(150*time.Millisecond))
		if err == nil {
			t.Error("held, although each renewal is lost")
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A hangingStore answers no request.
type hangingStore struct{ *driver.Full }

func (hangingStore) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	within, cancel := context.WithDeadline(ctx, r.Until)
	defer cancel()
	<-within.Done()
	return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Cause: errors.New("no route to host")}
}

// If the context ends during an attempt, the error contains the store's cause, also without a pause
// between the attempts.
func TestAttemptsKeepTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(hangingStore{driver.Complete(memstore.New())})
		defer locks.Close()
		for range 20 { // a select chose one of two ends at random
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := locks.Mutex("a").Lock(ctx, dibs.Attempts(3, 0))
			cancel()
			if !errors.Is(err, dibs.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
	})
}

// A multi-lock revoked in part while its client closes leaves no name behind.
func TestPartlyLostWhileClosing(t *testing.T) {
	for range 1000 {
		store := memstore.New()
		locks, operator := dibs.New(store), dibs.New(store)
		lease, err := locks.All([]string{"a", "b"}).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = operator.Revoke(context.Background(), "a", dibs.Holder{Fence: lease.FenceOf("a")}, "maintenance")
		})
		both.Go(func() {
			for range rand.IntN(2000) { // so that they meet
			}
			_ = locks.Close()
		})
		both.Wait()
		if state, err := operator.Inspect(t.Context(), "b"); err != nil || len(state.Holders) > 0 {
			t.Fatalf("after Close: %+v, %v", state, err)
		}
		_ = operator.Close()
	}
}
