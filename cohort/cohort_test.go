package cohort_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// While another process waits, a cohort passes the lock on batch times, then hands it off.
func TestCohortBatch(t *testing.T) {
	for batch, want := range map[int]string{
		1: "a1 a2 b1 b2 a3 a4 a5 a6",
		2: "a1 a2 a3 b1 b2 a4 a5 a6",
		9: "a1 a2 a3 a4 a5 a6 b1 b2",
	} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				a, b := group(t, s, batch, 0), open(t, s)
				w := workplace{t: t}
				first := lock(t, a)
				for i := 2; i <= 6; i++ {
					w.queueUp(fmt.Sprint("a", i), w.local(a), time.Millisecond)
					if i == 3 {
						w.queueUp("b1", w.remote(b), time.Millisecond)
						w.queueUp("b2", w.remote(b), time.Millisecond)
					}
				}
				w.enter("a1", first, time.Millisecond)
				wantErr(t, first.Unlock())
				time.Sleep(time.Second)
				if got := w.order(); got != want {
					t.Errorf("order %s, want %s", got, want)
				}
				wantFree(t, s)
			})
		})
	}
}

// Without waiters from other processes, a lease serves all calls, for at most a second.
func TestCohortWithoutOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a := group(t, n, 2, 0)
		w := workplace{t: t}
		first := lock(t, a)
		const callers = 500
		for i := range callers {
			w.queueUp(fmt.Sprint(i), w.local(a), time.Millisecond)
		}
		wantErr(t, first.Unlock())
		time.Sleep(900 * time.Millisecond)
		if _ = w.order(); w.entries() != callers {
			t.Errorf("%d of %d calls were served", w.entries(), callers)
		}
		if acquires := n.count("acquire"); acquires != 1 {
			t.Errorf("%d acquires, want 1", acquires)
		}
		wantFree(t, n)
	})
}

// Calls without work must not use up their batch before the store replies that no other process
// waits.
func TestCohortAwaitsTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const trip = 5 * time.Millisecond
		n := newNetwork()
		n.set(func(n *network) {
			n.before = func(_ context.Context, op string) error {
				if op == "wanted" || op == "fences" {
					time.Sleep(trip)
				}
				return nil
			}
		})
		a := group(t, n, 2, 0)
		w := workplace{t: t}
		first := lock(t, a)
		for i := range 200 {
			w.queueUp(fmt.Sprint(i), w.local(a), 0)
		}
		begin := time.Now()
		wantErr(t, first.Unlock())
		waitUntilFree(t, n)
		wantTook(t, begin, 0, 5*trip)
		if _ = w.order(); w.entries() != 200 || n.count("acquire") != 1 {
			t.Errorf("%d calls were served with %d acquires, want 200 and 1", w.entries(), n.count("acquire"))
		}
	})
}

// A cohort whose callers never stop releases the lock once a second, or after its linger,
// although it does not know of any waiter. So a waiter whose notification was lost is served.
func TestCohortTenure(t *testing.T) {
	for linger, longest := range map[time.Duration]time.Duration{0: time.Second, 3 * time.Second: 3 * time.Second} {
		t.Run(fmt.Sprint(linger), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				n := &network{Store: s, calls: make(map[string]int)}
				n.set(func(n *network) { n.silent = true })
				a, b := group(t, deaf{n}, 8, linger), open(t, s)
				stop := make(chan struct{})
				var workers sync.WaitGroup
				for range 3 {
					workers.Go(func() {
						for !isClosed(stop) {
							l := lock(t, a)
							time.Sleep(time.Millisecond)
							wantErr(t, l.Unlock())
						}
					})
				}
				begin := time.Now()
				time.Sleep(300 * time.Millisecond)
				l := lockMutex(t, b)
				wantTook(t, begin, longest, longest+time.Millisecond)
				wantErr(t, l.Unlock())
				close(stop)
				workers.Wait()
			})
		})
	}
}

// Each call should wait for at most the documented number of turns of each client.
func TestCohortBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const (
			clients, calls, batch = 3, 10, 4
			work                  = time.Millisecond
			turn                  = (batch + 1) * work          // a hand-off takes no time
			turns                 = (calls+batch)/(batch+1) + 1 // a call can come in the middle of a turn
		)
		s := memstore.New()
		w := workplace{t: t}
		var workers sync.WaitGroup
		for i := range clients {
			a := group(t, s, batch, time.Duration(i)*time.Millisecond)
			for range calls {
				workers.Go(func() {
					for range 100 {
						begin := time.Now()
						l := lock(t, a)
						wantTook(t, begin, 0, clients*turns*turn)
						w.enter(fmt.Sprint(i), l, work)
						wantErr(t, l.Unlock())
					}
				})
			}
		}
		workers.Wait()
		if _ = w.order(); w.entries() != clients*calls*100 {
			t.Errorf("%d entries", w.entries())
		}
	})
}

// A deaf store reports that nobody waits.
type deaf struct{ *network }

func (deaf) NotifyWanted(context.Context, driver.WantedRequest) (bool, error) { return false, nil }

// An unlock between calls in the same process should send nothing to the store but requests for
// fences.
func TestCohortPassSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a := group(t, n, 32, time.Second)
		wantErr(t, lock(t, a).Unlock())
		synctest.Wait()
		counts := func() string { return fmt.Sprint(n.count("acquire"), n.count("release"), n.count("wanted")) }
		before := counts()
		for range 100 {
			wantErr(t, lock(t, a).Unlock())
		}
		if after := counts(); after != before {
			t.Errorf("requests %s before and %s after", before, after)
		}
		if took := waitUntilFree(t, n); took > time.Second+10*time.Millisecond {
			t.Errorf("it lingered for %v", took)
		}
	})
}

// The store should have issued each lease's fence before, and fences should grow.
func TestCohortFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a := group(t, n, 32, time.Second)
		last := uint64(0)
		for range 5000 {
			l := lock(t, a)
			if l.Fence() <= last || l.Fence() > n.issued() {
				t.Fatalf("fence %d after %d, while the store has issued %d", l.Fence(), last, n.issued())
			}
			last = l.Fence()
			wantErr(t, l.Unlock())
		}
		time.Sleep(time.Minute)
		if l := lockMutex(t, open(t, n)); l.Fence() <= last {
			t.Errorf("fence %d of another process after %d", l.Fence(), last)
		}
	})
}

// A call that finds few fences reserves as many as it needs: fences follow the store's clock,
// however many names use cohorts.
func TestCohortFencesFollowTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		c := open(t, n)
		var groups []*cohort.Cohort
		for i := range 100 {
			groups = append(groups, cohort.New(c.Mutex(fmt.Sprint("n", i)), cohort.Passes(8), cohort.IdleHold(100*time.Millisecond)))
		}
		for i := range 2000 {
			for range 3 {
				l := lock(t, groups[i%100])
				if ahead := int64(l.Fence()) - time.Now().UnixMicro(); ahead > 50_000 { // a few hundred for each name
					t.Fatalf("lock %d: a fence is %d µs ahead of the clock", i, ahead)
				}
				time.Sleep(10 * time.Microsecond)
				wantErr(t, l.Unlock())
			}
		}
	})
}

func TestCohortLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := group(t, s, 8, 5*time.Second), open(t, s)
		wantErr(t, lock(t, a).Unlock())
		if took := waitUntilFree(t, s); took < 5*time.Second || took > 5*time.Second+time.Millisecond {
			t.Errorf("it lingered for %v", took)
		}

		wantErr(t, lock(t, a).Unlock())
		time.Sleep(4 * time.Second)
		wantErr(t, lock(t, a).Unlock()) // each use starts the time again
		time.Sleep(900 * time.Millisecond)
		_, err := b.Mutex("n").TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)

		begin := time.Now()
		l := lockMutex(t, b) // it is released at once for a waiting call
		wantTook(t, begin, 0, 0)
		wantErr(t, l.Unlock())
		wantFree(t, s)
	})
}

// A call that tries once returns at once if others hold the lock, and does not overtake its
// cohort's waiting calls.
func TestCohortTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a, b := group(t, n, 8, time.Second), open(t, n)
		try := func() (*cohort.Lease, error) { return a.Lock(t.Context(), dibs.Wait(0)) }
		l, err := try() // the store decides
		wantErr(t, err)
		_, err = b.Mutex("n").TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		var busy *dibs.BusyError
		if _, err := try(); !errors.As(err, &busy) || busy.Holder == "" || busy.Remaining <= 0 {
			t.Errorf("a try while it is held: %v", err)
		}
		wantErr(t, l.Unlock())
		again, err := try() // it lingers
		wantErr(t, err)
		if again.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", again.Fence(), l.Fence())
		}
		w := workplace{t: t}
		w.queueUp("waiter", w.local(a), time.Millisecond)
		wantErr(t, again.Unlock())
		if _, err = try(); err == nil {
			t.Error("a try has overtaken a waiter")
		}
		time.Sleep(2 * time.Second)

		theirs := lockMutex(t, b)
		begin := time.Now()
		if _, err := try(); !errors.As(err, &busy) || busy.Holder != theirs.Token() || busy.Remaining <= 0 {
			t.Errorf("a try while another process holds: %v", err)
		}
		wantTook(t, begin, 0, 0)
		synctest.Wait()
		if state, err := n.Inspect(t.Context(), "n"); err != nil || state.Waiting != 0 {
			t.Errorf("%d waiters after a try, %v", state.Waiting, err)
		}
		wantErr(t, theirs.Unlock())
	})
}

// A call that gives up leaves nothing behind, wherever it waits.
func TestCohortGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := group(t, s, 8, 0), open(t, s)
		theirs := lockMutex(t, b)
		var busy *dibs.BusyError
		begin := time.Now()
		_, err := a.Lock(t.Context(), dibs.Wait(time.Second))
		if !errors.As(err, &busy) || busy.Holder != theirs.Token() || busy.Remaining != 29*time.Second {
			t.Errorf("%v", err)
		}
		wantTook(t, begin, time.Second, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.Lock(ctx)
		wantErr(t, err, dibs.ErrBusy, context.DeadlineExceeded)
		wantErr(t, theirs.Unlock())
		wantFree(t, s)

		mine := lock(t, a)
		w := workplace{t: t}
		w.queueUp("one", w.local(a), time.Millisecond)
		_, err = a.Lock(t.Context(), dibs.Wait(time.Second))
		if !errors.As(err, &busy) || busy.Holder == "" || busy.Ahead != 1 {
			t.Errorf("while this process holds: %v", err)
		}
		wantErr(t, mine.Unlock())
		time.Sleep(time.Second)
		if got := w.order(); got != "one" {
			t.Errorf("served: %q", got)
		}
		wantFree(t, s)

		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Lock(cancelled)
		wantErr(t, err, context.Canceled)
		if errors.Is(err, dibs.ErrBusy) {
			t.Errorf("nothing was asked: %v", err)
		}
	})
}

// Options that concern a single lease in the store should be rejected, with advice.
func TestCohortOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		a := cohort.New(c.Mutex("n"), cohort.Passes(8), cohort.IdleHold(time.Second))
		for what, option := range map[string]dibs.Option{
			"OwnerToken": dibs.OwnerToken("request-1"), "MinHold": dibs.MinHold(time.Second), "NoRenew": dibs.NoRenew(), "Reentrant": dibs.Reentrant(),
			"Attempts": dibs.Attempts(2, time.Second), "TTL": dibs.TTL(time.Minute), "Observe": dibs.Observe(dibs.Hooks{}), "Wait of 3 ns": dibs.Wait(3),
			"Hooks.Renewed": dibs.Observe(dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) {}}),
		} {
			if _, err := a.Lock(t.Context(), option); !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("%s given to a call: %v", what, err)
			}
		}
		for _, options := range [][]dibs.Option{{dibs.MinHold(time.Second)}, {dibs.NoRenew()}, {dibs.Reentrant()}, {dibs.Attempts(2, time.Second)}, {dibs.TTL(1)}} {
			_, err := cohort.New(c.Mutex("n", options...), cohort.Passes(8)).Lock(t.Context())
			wantErr(t, err, dibs.ErrInvalid)
		}
		if n := reflect.TypeFor[dibs.CallSettings]().NumField(); n != 13 {
			t.Errorf("a call has %d settings: does a Cohort use or reject each of them?", n)
		}
		for _, linger := range []time.Duration{-1, 1, time.Millisecond - 1, 11 * time.Second, math.MaxInt64} {
			_, err := cohort.New(c.Mutex("n"), cohort.Passes(8), cohort.IdleHold(linger)).Lock(t.Context())
			wantErr(t, err, dibs.ErrInvalid)
		}
		for _, batch := range []int{-1, 0, cohort.MaxPasses + 1} {
			_, err := cohort.New(c.Mutex("n"), cohort.Passes(batch)).Lock(t.Context())
			wantErr(t, err, dibs.ErrInvalid)
		}
		for _, bad := range []*cohort.Cohort{nil, {}, cohort.New(nil, cohort.Passes(8)), cohort.New(c.Mutex(""), cohort.Passes(8)), cohort.New(new(dibs.Client).Mutex("n"), cohort.Passes(8))} {
			_, err := bad.Lock(t.Context())
			wantErr(t, err, dibs.ErrInvalid)
		}
		wantErr(t, a.Do(t.Context(), nil), dibs.ErrInvalid)
		wantErr(t, lock(t, a, dibs.Wait(time.Second), dibs.Timeout(2*time.Second), dibs.MaxHold(time.Minute), dibs.Label("web")).Unlock())
	})
}

// A client's default concerns all its locks. Those that can use it should, and no other lock should
// fail because some names use a Cohort.
func TestCohortBreaksNoOtherLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New(), dibs.TTL(200*time.Millisecond), dibs.Wait(time.Second), dibs.MaxHold(time.Hour), dibs.Label("web"))
		a := cohort.New(c.Mutex("n"), cohort.IdleHold(10*time.Millisecond))
		wantErr(t, lock(t, a).Unlock())
		r, err := c.RWMutex("cfg").Reader().Lock(t.Context())
		wantErr(t, err)
		wantErr(t, r.Unlock())
		l, err := c.Mutex("other").Lock(t.Context(), dibs.OwnerToken("request-1"))
		wantErr(t, err)
		wantErr(t, l.Unlock())
		if err := c.Once("report", time.Second).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// A local lease's context should carry its fence, and no lease.
func TestCohortContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		a, other := cohort.New(c.Mutex("n"), cohort.Passes(8), cohort.IdleHold(time.Second)), cohort.New(c.Mutex("m"), cohort.Passes(8))
		type key struct{}
		outer := context.WithValue(t.Context(), key{}, "value")
		wantErr(t, a.Do(outer, func(ctx context.Context) error {
			if ctx.Value(key{}) != "value" || carried.Fence(ctx) == 0 || carried.FenceOf(ctx, "n") != carried.Fence(ctx) || carried.FenceOf(ctx, "m") != 0 {
				t.Errorf("fence %d, of n %d", carried.Fence(ctx), carried.FenceOf(ctx, "n"))
			}
			_, err := a.Lock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			wantErr(t, carried.Yield(ctx, "n"), dibs.ErrInvalid)
			wantErr(t, s.Guard(ctx), dibs.ErrInvalid)
			return other.Do(ctx, func(inner context.Context) error {
				if carried.FenceOf(inner, "n") != carried.Fence(ctx) || carried.FenceOf(inner, "m") != carried.Fence(inner) {
					t.Error("the inner context has other fences")
				}
				_, err := a.Lock(inner)
				wantErr(t, err, dibs.ErrReentrant)
				return nil
			})
		}))
		ctx, cancel := context.WithCancel(outer)
		l, err := a.Lock(ctx)
		wantErr(t, err)
		cancel()
		if l.Context() != l.Context() || l.Context().Err() != nil || l.Context().Value(key{}) != "value" || carried.Fence(l.Context()) != l.Fence() {
			t.Error("the context has ended with that of the call, or is another one")
		}
		wantErr(t, l.Unlock())
		wantErr(t, l.Unlock())
		wantErr(t, l.Err(), dibs.ErrReleased)
		wantErr(t, context.Cause(l.Context()), context.Canceled)
		if next := lock(t, a); next.Name() != "n" || time.Until(next.Deadline()) <= 25*time.Second {
			t.Errorf("%s until %v", next.Name(), next.Deadline())
		} else {
			wantErr(t, next.Unlock())
		}
	})
}

// A nil or zero Lease's methods should return an error or zero values.
func TestZeroLease(t *testing.T) {
	for _, l := range []*cohort.Lease{nil, {}} {
		wantErr(t, l.Err(), dibs.ErrInvalid)
		wantErr(t, l.Unlock(), dibs.ErrInvalid)
		wantErr(t, context.Cause(l.Context()), dibs.ErrInvalid)
		if l.Name() != "" || l.Fence() != 0 || !l.Deadline().IsZero() || l.Wanted() != nil {
			t.Error("a zero Lease has values")
		}
	}
}

// A function that panics or ends its goroutine should leave no lock behind.
func TestCohortDoThatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a := group(t, s, 8, 0)
		failed := errors.New("failed")
		wantErr(t, a.Do(t.Context(), func(context.Context) error { return failed }), failed)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_ = a.Do(t.Context(), func(context.Context) error { panic("fn") })
		}()
		<-done
		wantErr(t, lock(t, a).Unlock())
		wantFree(t, s)
	})
}

func TestCohortClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := dibs.New(s)
		a, other := cohort.New(c.Mutex("n"), cohort.Passes(8), cohort.IdleHold(time.Second)), cohort.New(c.Mutex("m"), cohort.Passes(8), cohort.IdleHold(time.Second))
		wantErr(t, lock(t, other).Unlock()) // it lingers
		l := lock(t, a, dibs.MaxHold(time.Hour))
		errs := make(chan error, 1)
		go func() {
			_, err := a.Lock(t.Context())
			errs <- err
		}()
		synctest.Wait()
		wantErr(t, c.Close())
		wantErr(t, <-errs, dibs.ErrClosed)
		wantLost(t, l.Err(), dibs.ReasonClosed)
		wantErr(t, l.Unlock(), dibs.ErrLost)
		_, err := a.Lock(t.Context())
		wantErr(t, err, dibs.ErrClosed)
		wantFree(t, s)
		if state, err := s.Inspect(t.Context(), "m"); err != nil || len(state.Holders) > 0 {
			t.Errorf("left: %+v, %v", state, err)
		}
	})
}

// A call on a client without a subscription should know about another holder before its Timeout.
func TestCohortOfAnUnsubscribedClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		held := lockMutex(t, open(t, s))
		n := &network{Store: s, calls: make(map[string]int)}
		n.set(func(n *network) { n.silent = true })
		a := cohort.New(open(t, deaf{n}).Mutex("n", dibs.Timeout(600*time.Millisecond)))
		time.AfterFunc(time.Minute, func() { wantErr(t, held.Unlock()) })
		begin := time.Now()
		wantErr(t, lock(t, a).Unlock())
		wantTook(t, begin, time.Minute, time.Minute+5*time.Second)
	})
}
