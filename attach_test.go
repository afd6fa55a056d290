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

func TestAttach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		first, second, rival := open(t, s, dibs.TTL(2*time.Second)), open(t, s, dibs.TTL(2*time.Second)), open(t, s)
		l := lock(t, first, "n", dibs.OwnerToken("request-7"), dibs.NoRenew())
		taken, err := second.Attach(t.Context(), l.Handle())
		wantErr(t, err)
		wantErr(t, taken.Err())
		if taken.Fence() != l.Fence() || taken.Name() != "n" || taken.Token() != "request-7" {
			t.Errorf("%q, token %s, fence %d; want those of the lease, with fence %d", taken.Name(), taken.Token(), taken.Fence(), l.Fence())
		}
		wantWithin(t, time.Until(taken.Deadline()), 1900*time.Millisecond, 2*time.Second)
		time.Sleep(time.Minute)
		wantErr(t, taken.Err())                  // it is renewed
		wantLost(t, l.Err(), dibs.ReasonExpired) // the first owner left the renewal to the second
		wantBusy(t, s, "n")
		third, err := first.Attach(t.Context(), dibs.NewHandle("n", "request-7"))
		wantErr(t, err)
		if third.Fence() != 0 {
			t.Errorf("fence %d of a handle without one", third.Fence())
		}
		wantErr(t, third.Unlock())
		lock(t, rival, "n")
		time.Sleep(time.Second)
		wantLost(t, taken.Unlock(), dibs.ReasonMissing)
		for _, handle := range []dibs.Handle{dibs.NewHandle("n", "nobody"), dibs.NewHandle("free", "nobody"), third.Handle()} {
			stranger, err := second.Attach(t.Context(), handle)
			wantLost(t, err, dibs.ReasonMissing)
			if stranger != nil {
				t.Error("a lease with an error")
			}
		}
		wantErr(t, errorOf(second.Attach(t.Context(), dibs.Handle{})), dibs.ErrInvalid)
	})
}

// Attach never shortens a lease, and its TTL is the renewals' TTL.
func TestAttachExtends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		l := lock(t, c, "n", dibs.TTL(time.Hour), dibs.NoRenew())
		attached, err := c.Attach(t.Context(), l.Handle(), dibs.TTL(10*time.Second), dibs.NoRenew())
		wantErr(t, err)
		wantWithin(t, time.Until(attached.Deadline()), 9*time.Second, 10*time.Second)
		time.Sleep(30 * time.Minute)
		wantLost(t, attached.Err(), dibs.ReasonExpired) // it knows only the TTL it requested
		wantErr(t, l.Err())
		again, err := c.Attach(t.Context(), l.Handle(), dibs.TTL(time.Minute), dibs.MaxHold(10*time.Minute))
		wantErr(t, err)
		wantErr(t, l.Detach())
		time.Sleep(9 * time.Minute)
		wantErr(t, again.Err())
		time.Sleep(2 * time.Minute)
		wantLost(t, again.Err(), dibs.ReasonMaxHold)
	})
}

// A lease only reserved by MinHold does not count as a lease. The first owner's MinHold ends with
// Detach.
func TestAttachAndMinHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		l := lock(t, c, "n", dibs.MinHold(time.Hour))
		attached, err := open(t, s).Attach(t.Context(), l.Handle())
		wantErr(t, err)
		wantErr(t, l.Detach())
		wantErr(t, attached.Unlock())
		wantFree(t, s, "n")

		l = lock(t, c, "n", dibs.MinHold(time.Hour))
		handle := l.Handle()
		wantErr(t, l.Unlock())
		wantBusy(t, s, "n")
		wantLost(t, errorOf(c.Attach(t.Context(), handle)), dibs.ReasonMissing)
	})
}

// A lost reply costs another attempt. After a failure nothing is left behind, and the lease lasts.
func TestAttachWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c, owner := open(t, f), open(t, s)
		l := lock(t, owner, "n", dibs.OwnerToken("request-7"))
		handle := l.Handle()
		lost := 0
		f.set(func(f *faulty) {
			f.extend = func(ctx context.Context, r []driver.ExtendRequest) []error {
				errs := f.Full.Extend(ctx, r)
				if lost++; lost < 3 {
					return []error{errReset}
				}
				return errs
			}
		})
		attached, err := c.Attach(t.Context(), handle)
		wantErr(t, err)
		wantErr(t, attached.Detach())
		f.hangAll()
		begin := time.Now()
		wantErr(t, errorOf(c.Attach(t.Context(), handle)), dibs.ErrUnavailable)
		wantWithin(t, time.Since(begin), time.Second, time.Second)
		f.heal()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, errorOf(c.Attach(ctx, handle)), context.Canceled)
		wantErr(t, l.Unlock())
		wantErr(t, lock(t, c, "n", dibs.OwnerToken("request-7")).Unlock()) // no attempt kept the token
	})
}

// A lease acquired meanwhile by another call with the token has a larger fence than the handle.
func TestAttachToReusedToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		old := lock(t, c, "n", dibs.OwnerToken("request-7"))
		handle := old.Handle()
		wantErr(t, old.Unlock())
		l := lock(t, c, "n", dibs.OwnerToken("request-7"))
		attached, err := c.Attach(t.Context(), handle)
		wantErr(t, err)
		if attached.Fence() >= l.Fence() {
			t.Errorf("fence %d, want less than %d: a resource must reject it", attached.Fence(), l.Fence())
		}
	})
}

// The first owner unlocks while another attaches: the lease is lost at once or at the next renewal.
func TestAttachDuringUnlock(t *testing.T) {
	for _, late := range []time.Duration{0, 20 * time.Millisecond} {
		bubble(t, func(t *testing.T) {
			f, s := newFaulty()
			l := lock(t, open(t, s), "n")
			f.set(func(f *faulty) {
				f.extend = func(ctx context.Context, r []driver.ExtendRequest) []error {
					time.Sleep(late)
					defer time.Sleep(20 * time.Millisecond)
					return f.Full.Extend(ctx, r)
				}
			})
			time.AfterFunc(10*time.Millisecond, func() { wantErr(t, l.Unlock()) })
			attached, err := open(t, f, dibs.TTL(3*time.Second)).Attach(t.Context(), l.Handle())
			if late == 0 {
				wantErr(t, err)
				time.Sleep(3 * time.Second)
				err = attached.Err()
			}
			wantLost(t, err, dibs.ReasonMissing)
			wantFree(t, s, "n")
		})
	}
}

// Close ends an Attach in progress, and does not release the owner's lease.
func TestAttachWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		l := lock(t, open(t, s), "n")
		f.set(func(f *faulty) {
			f.extend = func(ctx context.Context, r []driver.ExtendRequest) []error {
				time.Sleep(100 * time.Millisecond)
				return f.Full.Extend(ctx, r)
			}
		})
		c := dibs.New(f)
		attached := make(chan error)
		go func() { attached <- errorOf(c.Attach(t.Context(), l.Handle())) }()
		synctest.Wait()
		go func() { _ = c.Close() }()
		if err := <-attached; !errors.Is(err, dibs.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
		wantErr(t, l.Err())
		wantErr(t, errorOf(c.Attach(t.Context(), l.Handle())), dibs.ErrClosed)
		wantErr(t, l.Unlock())
	})
}
