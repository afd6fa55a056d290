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

func (alwaysGrants) Watch(ctx context.Context, _ string, _ func(driver.Event)) error {
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

// If successes and failures alternate, leases are not renewed at each success.
func TestRenewerRenewsAllOnceASecond(t *testing.T) {
	r := newRenewer()
	for _, step := range []struct {
		at  time.Duration
		may bool
	}{{time.Hour, true}, {time.Hour + 500*time.Millisecond, false}, {time.Hour + time.Second, true}, {time.Hour + 1100*time.Millisecond, false}} {
		if r.mayRenewAll(step.at) != step.may {
			t.Errorf("at %v: %t", step.at, !step.may)
		}
	}
	r.reconnected(2 * time.Hour)
	if !r.startReconnect(3*time.Hour) || r.startReconnect(3*time.Hour) || r.mayRenewAll(3*time.Hour+time.Millisecond) {
		t.Error("a reconnect is to make all leases due, once, like mayRenewAll")
	}
}

// A client that holds nothing hardly wakes.
func TestRenewerSleeps(t *testing.T) {
	r, h := newRenewer(), new(lease)
	if d := r.sleep(0); d != time.Hour {
		t.Errorf("sleeps %v without leases, want 1h", d)
	}
	r.set(h, 0, 400*time.Millisecond, 0)
	if d := r.sleep(0); d != 400*time.Millisecond {
		t.Errorf("sleeps %v, want 400ms, until the next action", d)
	}
	r.set(h, 0, time.Minute, 0)
	if d := r.sleep(0); d != time.Second {
		t.Errorf("sleeps %v, want 1s: timers stop while the machine is suspended", d)
	}
	r.remove(h)
	r.remove(h)
	if len(r.all()) != 0 {
		t.Error("it was not removed")
	}
}

// A lease that is due stays in the schedule, because Close must release it too.
func TestRenewerKeepsWhatIsDue(t *testing.T) {
	r, h := newRenewer(), new(lease)
	r.set(h, 0, time.Second, 100*time.Millisecond)
	if due := r.popDue(999 * time.Millisecond); len(due) != 0 {
		t.Error("due too early")
	}
	if due := r.popDue(time.Second); len(due) != 1 || len(r.popDue(time.Hour)) != 0 {
		t.Errorf("%d leases are due, want 1, once", len(due))
	}
	if held, _ := r.close(); len(held) != 1 {
		t.Errorf("close returned %d leases, want 1", len(held))
	}
	if r.set(h, 0, time.Second, 0) {
		t.Error("scheduled after close")
	}
}

// A lease is renewed early only together with one that is due.
func TestRenewerJoinsWhatIsDueSoon(t *testing.T) {
	r := newRenewer()
	const ms = time.Millisecond
	for at, early := range map[time.Duration]time.Duration{1000 * ms: 0, 1500 * ms: 500 * ms, 1600 * ms: 500 * ms} {
		r.set(new(lease), 0, at, early)
	}
	if due := r.popDue(999 * time.Millisecond); len(due) != 0 {
		t.Errorf("%d leases are due before the first one", len(due))
	}
	if due := r.popDue(time.Second); len(due) != 2 {
		t.Errorf("%d leases are due, want the first one and that which may be 500 ms early", len(due))
	}
}

// A lease that has ended is not kept, and a failover makes all leases due.
func TestClientForgetsEndedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(alwaysGrants{})
		c.started.Store(true) // no scheduler, which would do what is due
		l, err := c.Mutex("n").Lock(t.Context())
		if err != nil || len(c.renewer.all()) != 1 {
			t.Fatalf("%d leases, %v", len(c.renewer.all()), err)
		}
		if err := l.Detach(); err != nil || len(c.renewer.all()) != 0 {
			t.Errorf("%d leases after the end, %v", len(c.renewer.all()), err)
		}
		c.handleEvent(driver.Event{Kind: driver.EventFailover})
		if c.renewer.reconnects.next() == never {
			t.Error("nothing is due after a failover")
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

// A renewal that hangs leaves time for another one before the deadline.
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
