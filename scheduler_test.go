package dibs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
)

// alwaysGrants is a store that grants every request.
type alwaysGrants struct{ driver.Store }

func (alwaysGrants) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{Held: true, Fence: 1}, nil
}

func (alwaysGrants) Cancel(context.Context, driver.AcquireRequest) error { return nil }

func (alwaysGrants) Watch(ctx context.Context, _ string, busy func() bool, _ func(driver.Event)) error {
	<-ctx.Done()
	return nil
}

// Err compares the clock: after a pause, the scheduler may be the last to wake.
func TestErrNeedsNoScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(alwaysGrants{})
		c.started.Store(true) // as if the scheduler never ran
		l, err := c.Mutex("n").Lock(t.Context(), TTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(979 * time.Millisecond)
		if err := l.Err(); err != nil {
			t.Errorf("lost before its deadline: %v", err)
		}
		time.Sleep(time.Millisecond)
		if err := l.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("error %v at the deadline, want ErrLost", err)
		}
		if err := l.Unlock(); !errors.Is(err, ErrLost) {
			t.Errorf("unlock: %v, want ErrLost", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An ended lease is not kept.
func TestClientForgetsEndedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(alwaysGrants{})
		c.started.Store(true) // without a scheduler, which would do the due actions
		l, err := c.Mutex("n").Lock(t.Context())
		if err != nil || len(c.renewals.All()) != 1 {
			t.Fatalf("%d leases, %v", len(c.renewals.All()), err)
		}
		if err := l.Detach(); err != nil || len(c.renewals.All()) != 0 {
			t.Errorf("%d leases after the end, %v", len(c.renewals.All()), err)
		}
	})
}

// hangsOnce is a store whose first renewal is never answered.
type hangsOnce struct {
	alwaysGrants
	renewals atomic.Int32
}

func (s *hangsOnce) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	if s.renewals.Add(1) > 1 {
		return make([]error, len(requests))
	}
	<-ctx.Done()
	return []error{&UnavailableError{Op: "extend", Cause: ctx.Err()}}
}

func (s *hangsOnce) Release(context.Context, driver.ReleaseRequest) (bool, error) { return true, nil }

// A hanging renewal leaves time for another before the deadline.
func TestRenewalThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(hangsOnce)
		c := New(s, Timeout(10*time.Second))
		defer c.Close()
		l, err := c.Mutex("n").Lock(t.Context(), TTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := l.Err(); err != nil || s.renewals.Load() < 2 {
			t.Errorf("%v after %d renewals", err, s.renewals.Load())
		}
	})
}
