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

// The holder's context ends, and the next one holds, in the same step.
func TestBreakEndsTheHolding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var told []error
		operator := open(t, s)
		holder := open(t, s, dibs.Observe(dibs.Hooks{Lost: func(l dibs.Lost) { told = append(told, l.Err) }}))
		l := lock(t, holder, "n")
		ctx := l.Context()
		next, third := mutex(t, s, "n"), mutex(t, s, "n")
		begin := time.Now()
		broken, err := operator.Revoke(t.Context(), "n", l.Fence())
		if !broken || err != nil {
			t.Fatal(broken, err)
		}
		wantIn(t, next)
		wantWaiting(t, third)
		<-ctx.Done()
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v", d)
		}
		wantLost(t, context.Cause(ctx), dibs.ReasonRevoked)
		wantLost(t, l.Err(), dibs.ReasonRevoked)
		if len(told) != 1 {
			t.Errorf("told %v, want one loss", told)
		}
		wantLost(t, l.Unlock(), dibs.ReasonRevoked)
		wantErr(t, l.Unlock())
		wantLost(t, l.Extend(t.Context(), time.Minute), dibs.ReasonRevoked)
		time.Sleep(time.Minute)
		wantErr(t, next.lease.Err()) // untouched by all that
		unlock(t, next)
		wantIn(t, third)
		if next.lease.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", next.lease.Fence(), l.Fence())
		}
	})
}

func TestBreakEndsTheWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		err := open(t, s).Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			synctest.Wait() // until it listens
			broken, err := operator.Revoke(t.Context(), "n", dibs.Fence(ctx))
			if !broken || err != nil {
				t.Error(broken, err)
			}
			<-ctx.Done()
			return nil
		})
		wantLost(t, err, dibs.ReasonRevoked)
		free(t, s, "n")
	})
}

// Who has seen one holding cannot end another.
func TestBreakOfAnotherFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		c := open(t, s)
		before := lock(t, c, "n")
		wantErr(t, before.Unlock())
		l, elsewhere := lock(t, c, "n"), lock(t, c, "m")
		next := mutex(t, s, "n")
		was, err := s.Inspect(t.Context(), "n")
		wantErr(t, err)
		for _, fence := range []uint64{1, before.Fence(), l.Fence() - 1, l.Fence() + 1, elsewhere.Fence(), 1<<64 - 1} {
			broken, err := operator.Revoke(t.Context(), "n", fence)
			if broken || err != nil {
				t.Errorf("break of %d, it is %d: %v, %v", fence, l.Fence(), broken, err)
			}
		}
		broken, err := operator.Revoke(t.Context(), "nobody", l.Fence())
		if broken || err != nil {
			t.Errorf("break of a name that is free: %v, %v", broken, err)
		}
		synctest.Wait()
		wantErr(t, errors.Join(l.Err(), elsewhere.Err()))
		wantWaiting(t, next)
		is, err := s.Inspect(t.Context(), "n")
		if err != nil || is.Holders[0] != was.Holders[0] || is.Waiting != was.Waiting {
			t.Errorf("%+v, %v, want %+v", is, err, was)
		}
		free(t, s, "nobody")
		wantErr(t, l.Unlock())
		broken, err = operator.Revoke(t.Context(), "n", l.Fence()) // it is over
		if broken || err != nil {
			t.Errorf("break of what is over: %v, %v", broken, err)
		}
		wantIn(t, next)
		wantErr(t, next.lease.Err())
	})
}

func TestBadBreak(t *testing.T) {
	c := open(t, untouched{t})
	for name, fence := range map[string]uint64{"n": 0, "": 1, "\xff": 1} {
		if broken, err := c.Revoke(t.Context(), name, fence); broken || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("break of %q, %d: %v, %v", name, fence, broken, err)
		}
	}
}

// Of many holders, one is meant; who fits then enters.
func TestBreakOfOnePermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		a, b := permits(t, s, 1, 3), permits(t, s, 2, 3)
		next, after := permits(t, s, 1, 3), permits(t, s, 2, 3)
		wantWaiting(t, next, after)
		broken, err := operator.Revoke(t.Context(), "n", a.lease.Fence())
		if !broken || err != nil {
			t.Fatal(broken, err)
		}
		wantIn(t, next)
		wantWaiting(t, after)
		wantLost(t, a.lease.Err(), dibs.ReasonRevoked)
		wantErr(t, b.lease.Err())
		broken, err = operator.Revoke(t.Context(), "n", b.lease.Fence())
		if !broken || err != nil {
			t.Fatal(broken, err)
		}
		wantIn(t, after)
		wantLost(t, b.lease.Err(), dibs.ReasonRevoked)
		wantErr(t, next.lease.Err())
		wantLost(t, a.lease.Unlock(), dibs.ReasonRevoked)
		unlock(t, next, after)
		free(t, s, "n")
	})
}

// A reader that is in the way of a writer, and a writer after an upgrade, whose fence
// is a new one.
func TestBreakOfReadersAndWriters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator := open(t, s)
		m := open(t, s).RWMutex("n")
		r := queue(func() (*dibs.Lease, error) { return m.RLock(t.Context()) })
		stuck := reading(t, s, "n")
		w := writing(t, s, "n")
		broken, err := operator.Revoke(t.Context(), "n", stuck.lease.Fence())
		if !broken || err != nil {
			t.Fatal(broken, err)
		}
		wantLost(t, stuck.lease.Err(), dibs.ReasonRevoked)
		wantWaiting(t, w)
		old := r.lease.Fence()
		wantErr(t, m.TryUpgrade(t.Context(), r.lease))
		if broken, err := operator.Revoke(t.Context(), "n", old); broken || err != nil {
			t.Errorf("break of the fence before the upgrade: %v, %v", broken, err)
		}
		wantErr(t, r.lease.Err())
		if broken, err := operator.Revoke(t.Context(), "n", r.lease.Fence()); !broken || err != nil {
			t.Errorf("break after the upgrade: %v, %v", broken, err)
		}
		wantIn(t, w)
		wantLost(t, r.lease.Err(), dibs.ReasonRevoked)
	})
}

// A nested call shares the loss.
func TestBreakOfASharedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		operator, c := open(t, s), open(t, s)
		l := lock(t, c, "n")
		inner, err := c.Mutex("n").Lock(l.Context(), dibs.Reentrant())
		wantErr(t, err)
		synctest.Wait()
		broken, err := operator.Revoke(t.Context(), "n", inner.Fence())
		if !broken || err != nil {
			t.Fatal(broken, err)
		}
		wantLost(t, inner.Unlock(), dibs.ReasonRevoked)
		wantLost(t, l.Unlock(), dibs.ReasonRevoked)
		free(t, s, "n")
	})
}

// The message is a hint: without it the next renewal tells.
func TestBreakWhoseMessageIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind != driver.EventRevoked {
					on(e)
				}
			}
		})
		l := lock(t, open(t, f, dibs.TTL(3*time.Second)), "n")
		synctest.Wait()
		begin := time.Now()
		broken, err := open(t, s).Revoke(t.Context(), "n", l.Fence())
		if !broken || err != nil {
			t.Fatal(broken, err)
		}
		<-l.Context().Done()
		within(t, time.Since(begin), 0, time.Second)
		wantLost(t, l.Err(), dibs.ReasonTaken)
	})
}

// A message that comes late means the holding that it names, not a later one of the
// same token.
func TestBreakWhoseMessageIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := broken()
		var late []func()
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind == driver.EventRevoked {
					late = append(late, func() { on(e) })
					return
				}
				on(e)
			}
		})
		c := open(t, f)
		l := lock(t, c, "n", dibs.Token("request-1"))
		synctest.Wait()
		broken, err := open(t, s).Revoke(t.Context(), "n", l.Fence())
		if !broken || err != nil || len(late) != 1 {
			t.Fatalf("%v, %v, %d messages", broken, err, len(late))
		}
		wantLost(t, l.Unlock(), dibs.ReasonTaken)
		l = lock(t, c, "n")
		late[0]()
		wantErr(t, l.Err())
		wantErr(t, l.Unlock())
	})
}

func TestBreakTellsWhoExtendedLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := open(t, s), open(t, s)
		l := lock(t, a, "n", dibs.Token("tok"), dibs.NoRenew())
		at, err := b.Attach("n", "tok")
		wantErr(t, err)
		wantErr(t, at.Extend(t.Context(), time.Minute))
		synctest.Wait()
		ok, err := open(t, s).Revoke(t.Context(), "n", l.Fence())
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		synctest.Wait()
		wantLost(t, at.Err(), dibs.ReasonRevoked)
	})
}
