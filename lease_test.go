package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func wantLost(t *testing.T, err error, why dibs.Reason) {
	t.Helper()
	var lost *dibs.LostError
	if !errors.Is(err, dibs.ErrLost) || !errors.As(err, &lost) || lost.Reason != why {
		t.Fatalf("error %v, want lost: %s", err, why)
	}
}

// The holder knows first: the context ends 2 % of the TTL before anyone else can hold the name,
// even if the store hangs.
func TestHolderKnowsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		holder, rival := open(t, f, dibs.TTL(2*time.Second)), open(t, good)
		l := lock(t, holder, "n")
		time.Sleep(10 * time.Second) // renewed several times
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		f.hangAll()
		entered := make(chan time.Time)
		go func() {
			lock(t, rival, "n")
			entered <- time.Now()
		}()
		<-l.Context().Done()
		lostAt := time.Now()
		wantLost(t, context.Cause(l.Context()), dibs.ReasonExpired)
		wantLost(t, l.Err(), dibs.ReasonExpired)
		if ahead := (<-entered).Sub(lostAt); ahead < 40*time.Millisecond {
			t.Errorf("context ended %v before the next holder entered, want 40ms", ahead)
		}
		wantLost(t, l.Unlock(), dibs.ReasonExpired)
		f.heal()
	})
}

// The deadline counts from the request's sending, not from its answer.
func TestDeadlineCountsFromSending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f, dibs.TTL(2*time.Second))
		slow := 300 * time.Millisecond
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				a, err := f.Store.Acquire(ctx, r)
				time.Sleep(slow)
				return a, err
			}
		})
		begin := time.Now()
		l := lock(t, c, "n", dibs.NoRenew())
		if d := l.Deadline().Sub(begin); d != 1960*time.Millisecond {
			t.Errorf("deadline %v after the request was sent, want 1.96s", d)
		}
		<-l.Context().Done()
		if d := time.Since(begin); d != 1960*time.Millisecond {
			t.Errorf("lost %v after the request was sent, want 1.96s", d)
		}
	})
}

func TestRenewedForADay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		l := lock(t, c, "n")
		time.Sleep(24 * time.Hour)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		calls, _ := f.extendCalls()
		if most := 24*360 + 1; calls > most || calls < most*9/10 {
			t.Errorf("%d renewals in a day, want about %d", calls, most)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// After a failed renewal the outcome is unknown, which is not a loss. The first successful renewal
// keeps the lease.
func TestRenewalFailureIsNotLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		var failures, lost atomic.Int32
		c := open(t, f, dibs.TTL(3*time.Second), dibs.Observe(dibs.Hooks{
			RenewFailed: func(context.Context, dibs.RenewFailed) { failures.Add(1) },
			Lost:        func(context.Context, dibs.Lost) { lost.Add(1) },
		}))
		l := lock(t, c, "n")
		f.set(func(f *faulty) {
			f.extend = func(context.Context, []driver.ExtendRequest) []error { return []error{errReset} }
		})
		time.Sleep(2900 * time.Millisecond)
		f.heal()
		time.Sleep(10 * time.Second)
		if err := l.Err(); err != nil || failures.Load() < 5 || lost.Load() != 0 {
			t.Errorf("%v after %d failed renewals, %d calls of the Lost hook", err, failures.Load(), lost.Load())
		}
	})
}

func TestTakenIsDetectedAtTheNextRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		losses := make(chan error, 1)
		c := open(t, s, dibs.TTL(3*time.Second), dibs.Observe(dibs.Hooks{Lost: func(_ context.Context, l dibs.Lost) { losses <- l.Err }}))
		l := lock(t, c, "n")
		begin := time.Now()
		ctx := l.Context()
		if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: string(l.Token())}); !released || err != nil {
			t.Fatal(released, err)
		}
		<-ctx.Done()
		if d := time.Since(begin); d > time.Second {
			t.Errorf("detected after %v, want a third of the TTL at most", d)
		}
		wantLost(t, context.Cause(ctx), dibs.ReasonMissing)
		wantLost(t, l.Unlock(), dibs.ReasonMissing)
		wantLost(t, <-losses, dibs.ReasonMissing)
		if err := l.Unlock(); err != nil {
			t.Errorf("second unlock: %v", err)
		}
	})
}

// When events flow again, the store may have lost everything: all leases are renewed at
// once.
func TestLossIsDetectedOnReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		var on func(driver.Event)
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, to func(driver.Event)) { on = to; to(e) }
		})
		c := open(t, f)
		l := lock(t, c, "n")
		fixed := lock(t, c, "fixed", dibs.NoRenew())
		synctest.Wait()
		for _, l := range []*dibs.Lease{l, fixed} {
			if released, err := good.Release(t.Context(), driver.ReleaseRequest{Name: l.Name(), Token: string(l.Token())}); !released || err != nil {
				t.Fatal(released, err)
			}
		}
		on(driver.Event{Kind: driver.EventConnected})
		synctest.Wait()
		wantLost(t, l.Err(), dibs.ReasonMissing)
		wantLost(t, fixed.Err(), dibs.ReasonMissing)
	})
}

func TestNoRenewAndExtend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		begin := time.Now()
		l := lock(t, c, "n", dibs.NoRenew(), dibs.TTL(10*time.Second))
		time.Sleep(5 * time.Second)
		if err := l.Extend(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := l.Extend(t.Context(), time.Second); err != nil { // does not shorten the lease
			t.Fatal(err)
		}
		<-l.Context().Done()
		if d := time.Since(begin); d != 14800*time.Millisecond {
			t.Errorf("lost after %v, want 14.8s", d)
		}
		if calls, _ := f.extendCalls(); calls != 2 {
			t.Errorf("%d extensions, want the two requested ones", calls)
		}
		wantLost(t, l.Extend(t.Context(), time.Second), dibs.ReasonExpired)
	})
}

// A hand-off has a 5 s TTL. The first renewal extends it, even without another.
func TestHandoffTTLIsExtended(t *testing.T) {
	for _, options := range [][]dibs.Option{{dibs.TTL(time.Minute)}, {dibs.TTL(time.Minute), dibs.NoRenew()}} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			first, second := open(t, s), open(t, s)
			l := lock(t, first, "n")
			go func() {
				time.Sleep(time.Hour + time.Second)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}()
			got := lock(t, second, "n", options...)
			if left := time.Until(got.Deadline()); left > driver.WaiterTTL {
				t.Errorf("%v left of a hand-off", left)
			}
			time.Sleep(50 * time.Second)
			if err := got.Err(); err != nil {
				t.Fatal(err)
			}
			if len(options) == 2 {
				time.Sleep(10 * time.Second)
				wantLost(t, got.Err(), dibs.ReasonExpired)
			}
		})
	}
}

func TestMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, rival := open(t, s), open(t, s)
		begin := time.Now()
		l := lock(t, c, "n", dibs.TTL(3*time.Second), dibs.MaxHold(10*time.Second))
		lock(t, rival, "n")
		if d := time.Since(begin); d < 10*time.Second || d > 10*time.Second+50*time.Millisecond {
			t.Errorf("the next holder entered after %v, want 10s", d)
		}
		wantLost(t, l.Err(), dibs.ReasonMaxHold)
		wantLost(t, l.Unlock(), dibs.ReasonMaxHold)
	})
}

func TestMinHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, rival := open(t, s), open(t, s)
		begin := time.Now()
		err := c.Mutex("n").Do(t.Context(), func(context.Context) error { return nil }, dibs.MinHold(4*time.Second))
		if err != nil || time.Since(begin) > 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		lock(t, rival, "n")
		if d := time.Since(begin); d < 4*time.Second || d > 4*time.Second+10*time.Millisecond {
			t.Errorf("the next holder entered after %v, want 4s", d)
		}
	})
}

// The context given to Lock limits the waiting only.
func TestContextOfLockBoundsWaitingOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "kept"), time.Second)
		l, err := c.Mutex("n").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := errors.Join(l.Err(), l.Context().Err()); err != nil {
			t.Errorf("the lease has ended with the context of Lock: %v", err)
		}
		if v := l.Context().Value(key{}); v != "kept" {
			t.Errorf("value %v", v)
		}
		if _, ok := l.Context().Deadline(); ok {
			t.Error("the context of the lease has a deadline")
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		if err := context.Cause(l.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("cause %v after Unlock", err)
		}
		wantErr(t, l.Err(), dibs.ErrReleased)
		if err := l.Unlock(); err != nil {
			t.Errorf("second unlock: %v", err)
		}
	})
}

// Many leases need a single goroutine and few bytes; their renewals are sent in batches.
func TestManyLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const leases = 20000
		f, _ := newFaulty()
		c := open(t, f)
		lock(t, c, "first")
		before := runtime.NumGoroutine()
		held := make([]*dibs.Lease, leases)
		for i := range held {
			held[i] = lock(t, c, fmt.Sprintf("n%d", i))
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Minute)
		if more := runtime.NumGoroutine() - before; more > 1 {
			t.Errorf("%d more goroutines for %d leases", more, leases)
		}
		for _, l := range held {
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
		}
		calls, renewed := f.extendCalls()
		if batch := renewed / calls; batch < 50 {
			t.Errorf("%d leases in a renewal, want 50", batch)
		}
	})
}

// Close waits for an Unlock in progress; otherwise its name would stay locked.
func TestCloseWaitsForUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				select { // in progress
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return false, &driver.UnavailableError{Op: "release", Cause: ctx.Err()}
				}
				return f.Store.Release(ctx, r)
			}
		})
		c := dibs.New(f)
		l := lock(t, c, "n")
		unlocked := make(chan error, 1)
		go func() { unlocked <- l.Unlock() }()
		synctest.Wait()
		wantErr(t, c.Close())
		wantErr(t, <-unlocked)
		if _, err := open(t, s).Mutex("n").TryLock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
