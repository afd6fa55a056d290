package dibs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A lease handed over stays held, whatever its first owner does afterwards.
func TestDetachHandsTheLeaseOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var j journal
		first := dibs.New(s, dibs.TTL(3*time.Second), dibs.Observe(j.all()))
		l := lock(t, first, "n", dibs.OwnerToken("request-7"))
		ctx := l.Context()
		attached, err := open(t, s).Attach(t.Context(), l.Handle(), dibs.TTL(3*time.Second))
		wantErr(t, err)
		time.Sleep(10 * time.Second) // both renew it

		wantErr(t, l.Detach())
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cause %v of the context, want Canceled", err)
		}
		if err := l.Err(); !errors.Is(err, dibs.ErrReleased) {
			t.Errorf("error %v, want ErrReleased", err)
		}
		wantErr(t, l.Detach())
		wantErr(t, l.Unlock())
		wantErr(t, first.Close())
		time.Sleep(time.Hour)
		wantErr(t, attached.Err())
		if _, err := open(t, s).Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("error %v, want ErrBusy: the second owner holds it", err)
		}
		wantErr(t, attached.Unlock())
		wantErr(t, lock(t, open(t, s), "n").Unlock())
		want := "start mutex(n 1/1) try=false end mutex(n 1/1) held waited=0s queued=false notified=false released mutex(n 1/1) held=10s <nil>"
		if have := j.String(); have != want {
			t.Errorf("hooks %q, want %q", have, want)
		}
	})
}

// Without another owner, a detached lease ends with its TTL.
func TestDetachWithoutAnotherOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		l := lock(t, open(t, s), "n", dibs.TTL(3*time.Second))
		wantErr(t, l.Detach())
		begin := time.Now()
		wantErr(t, lock(t, open(t, s), "n").Unlock())
		if d := time.Since(begin); d < 2900*time.Millisecond || d > 3100*time.Millisecond {
			t.Errorf("free after %v, want the TTL of 3s", d)
		}
	})
}

func TestDetachRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		lost := lock(t, c, "lost", dibs.MaxHold(time.Second))
		time.Sleep(2 * time.Second)
		wantLost(t, lost.Detach(), dibs.ReasonMaxHold)

		outer := lock(t, c, "n")
		inner, err := c.Mutex("n").Lock(outer.Context(), dibs.Reentrant())
		wantErr(t, err)
		for _, l := range []*dibs.Lease{outer, inner} {
			if err := l.Detach(); !errors.Is(err, dibs.ErrReentrant) {
				t.Errorf("error %v, want ErrReentrant", err)
			}
		}
		wantErr(t, inner.Unlock())
		wantErr(t, outer.Err())
		wantErr(t, outer.Detach())
	})
}

// An unanswered acquire arrives as late as it can. It does not acquire the name again after the new
// owner unlocked.
func TestDetachLeavesNothing(t *testing.T) {
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				net := &lateStore{faulty: f, tries: 1, delay: 490 * time.Millisecond}
				l, err := call(t.Context(), open(t, net), dibs.TTL(20*time.Second))
				wantErr(t, err)
				attached, err := open(t, good).Attach(t.Context(), l.Handle(), dibs.TTL(20*time.Second))
				wantErr(t, err)
				begin := time.Now()
				wantErr(t, l.Detach())
				if took := time.Since(begin); took > 1100*time.Millisecond {
					t.Errorf("Detach took %v, want at most one operation timeout and 100ms", took)
				}
				wantErr(t, attached.Err())
				wantErr(t, attached.Unlock())
				net.wantDelivered(t, 1)
				wantNothing(t, good, "n")
			})
		})
	}
}

// A change to the weight without an answer must not reach the new owner's lease.
func TestDetachAfterLateUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		m := open(t, f).RWMutex("n")
		l, err := m.Reader().Lock(t.Context())
		wantErr(t, err)
		f.set(func(f *faulty) {
			f.resize = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				time.AfterFunc(time.Until(r.Until), func() { _, _ = driver.Complete(good).Resize(context.WithoutCancel(ctx), r) })
				return driver.AcquireReply{}, hang(ctx, r.Until)
			}
		})
		for _, inProgress := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			done := make(chan error)
			go func() { done <- l.TryUpgrade(ctx) }()
			synctest.Wait()
			if !inProgress {
				wantErr(t, <-done, dibs.ErrUnavailable)
			}
			handle := l.Handle()
			wantErr(t, l.Detach())
			attached, err := open(t, good).Attach(t.Context(), handle, dibs.TTL(time.Minute))
			wantErr(t, err)
			before, err := driver.Complete(good).Inspect(t.Context(), "n")
			wantErr(t, err)
			time.Sleep(5 * time.Second)
			after, err := driver.Complete(good).Inspect(t.Context(), "n")
			wantErr(t, err)
			if len(after.Holders) != 1 || after.Holders[0].Fence != before.Holders[0].Fence {
				t.Errorf("%+v, want the same as before: %+v", after, before)
			}
			if inProgress {
				wantErr(t, <-done, dibs.ErrUnavailable)
			}
			cancel()
			wantErr(t, attached.Unlock())
			l, err = m.Reader().Lock(t.Context())
			wantErr(t, err)
		}
	})
}

// While Detach waits, the lease may end in another way.
func TestDetachWhileItEnds(t *testing.T) {
	for what, end := range map[string]func(c *dibs.Client, l *dibs.Lease) error{
		"Unlock": func(_ *dibs.Client, l *dibs.Lease) error { return l.Unlock() },
		"Close":  func(c *dibs.Client, _ *dibs.Lease) error { return c.Close() },
		"Detach": func(_ *dibs.Client, l *dibs.Lease) error { return l.Detach() },
	} {
		bubble(t, func(t *testing.T) {
			f, good := newFaulty()
			net := &lateStore{faulty: f, tries: 1, delay: 490 * time.Millisecond}
			c := open(t, net)
			l := lock(t, c, "n")
			detached := make(chan error)
			go func() { detached <- l.Detach() }()
			synctest.Wait()
			wantErr(t, end(c, l))
			err := <-detached
			if what == "Close" {
				wantLost(t, err, dibs.ReasonClosed)
			} else {
				wantErr(t, err)
			}
			net.wantDelivered(t, 1)
			if what != "Detach" {
				wantNothing(t, good, "n")
			}
		})
	}
}
