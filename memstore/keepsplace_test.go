package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A stalling store answers nothing while it is stalled.
type stalling struct {
	*memstore.Store
	mu    sync.Mutex
	until time.Time
}

func (s *stalling) stall(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
}

// enter waits until a stall ends, or fails at a request's deadline.
func (s *stalling) enter(ctx context.Context, until time.Time) error {
	s.mu.Lock()
	left := time.Until(s.until)
	s.mu.Unlock()
	if left <= 0 {
		return nil
	}
	if !until.IsZero() {
		left = min(left, time.Until(until))
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(left):
	}
	if !until.IsZero() && !time.Now().Before(until) {
		return errors.New("stalled")
	}
	return nil
}

func (s *stalling) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := s.enter(ctx, r.Until); err != nil {
		return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Name: r.Name, Cause: err}
	}
	return s.Store.Acquire(ctx, r)
}

func (s *stalling) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if err := s.enter(ctx, r.Until); err != nil {
		return false, &driver.UnavailableError{Op: "release", Name: r.Name, Cause: err}
	}
	return s.Store.Release(ctx, r)
}

// A steppedClock is a clock that tests can set.
type steppedClock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *steppedClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *steppedClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// Neither a stall in the store nor a step of its clock should change the waiters' order. The lock
// should be free soon afterwards for requests, although a waiter died.
func TestWaitersKeepTheirPlaces(t *testing.T) {
	faults := map[string]func(*stalling, *steppedClock){}
	for _, d := range []time.Duration{time.Second, 2 * time.Second, 2900 * time.Millisecond, 4 * time.Second, 7 * time.Second, 40 * time.Second, time.Hour} {
		faults["stall of "+d.String()] = func(s *stalling, _ *steppedClock) { s.stall(d); time.Sleep(d) }
	}
	for _, d := range []time.Duration{300 * time.Millisecond, 6 * time.Second, time.Hour} {
		faults["clock ahead by "+d.String()] = func(_ *stalling, c *steppedClock) { c.step(d) }
		faults["clock back by "+d.String()] = func(_ *stalling, c *steppedClock) { c.step(-d) }
	}
	for name, fault := range faults {
		for _, before := range []time.Duration{0, 1100 * time.Millisecond, 2400 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { keepPlaces(t, fault, before) })
			})
		}
	}
}

func keepPlaces(t *testing.T, fault func(*stalling, *steppedClock), before time.Duration) {
	const waiters = 8
	clock := new(steppedClock)
	s := &stalling{Store: memstore.New(memstore.Clock(clock.now))}
	newClient := func() *dibs.Client {
		c := dibs.New(s, dibs.TTL(2*time.Hour))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	holder, err := newClient().Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead := driver.AcquireRequest{Name: "n", Token: "dead", Client: "d", TTL: time.Second, Weight: 1, Limit: 1, Queue: true}
	if _, err := s.Store.Acquire(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var served []int
	var running sync.WaitGroup
	for i := range waiters {
		running.Go(func() {
			err := newClient().Mutex("n").Do(t.Context(), func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				served = append(served, i)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(before)
	fault(s, clock)
	begin := time.Now()
	_ = holder.Unlock() // the lease may have expired
	running.Wait()
	if !slices.IsSorted(served) || len(served) != waiters {
		t.Errorf("served in the order %d", served)
	}
	if took := time.Since(begin); took > driver.WaiterTTL+time.Second {
		t.Errorf("served after %v, want that a dead waiter blocks the others for %v at most", took, driver.WaiterTTL)
	}
}

// Whichever request finds that a heartbeat is missing, the waiter should learn it and be able to
// send a heartbeat.
func TestWaiterLearnsThatItsHeartbeatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var retried []string
		go func() {
			_ = s.Watch(t.Context(), "c", nil, func(e driver.Event) {
				if e.Kind == driver.EventRetry {
					retried = append(retried, e.Token)
				}
			})
		}()
		acquire := func(name, token string) {
			r := driver.AcquireRequest{Name: name, Token: token, Client: "c", TTL: time.Second, Weight: 1, Limit: 1, Queue: true}
			if _, err := s.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		acquire("n", "holder")
		acquire("n", "waiter")
		time.Sleep(driver.WaiterTTL)
		acquire("other", "holder")
		synctest.Wait()
		if !slices.Equal(retried, []string{"waiter"}) {
			t.Errorf("notified to retry: %q, want the waiter", retried)
		}
	})
}
