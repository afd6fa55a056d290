package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/history"
	"github.com/dibslock/dibs/memstore"
)

// An entry is one turn of a worker in a critical section.
type entry struct {
	who   string
	fence uint64
	token string
}

// A workplace is a critical section that records who enters it, and checks that nobody is
// inside with another one.
type workplace struct {
	t      *testing.T
	inside atomic.Int32

	mu      sync.Mutex
	entries []entry
}

func (w *workplace) enter(who string, l *dibs.Lease, work time.Duration) {
	if w.inside.Add(1) != 1 {
		w.t.Error("two holders at once")
	}
	w.mu.Lock()
	w.entries = append(w.entries, entry{who, l.Fence(), l.Token()})
	w.mu.Unlock()
	time.Sleep(work)
	w.inside.Add(-1)
}

// order returns the names of those who have entered, in order. It checks that fences grow.
func (w *workplace) order() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for i, e := range w.entries {
		names = append(names, e.who)
		if i > 0 && e.fence <= w.entries[i-1].fence {
			w.t.Errorf("entry %d: fence %d after %d", i, e.fence, w.entries[i-1].fence)
		}
	}
	return strings.Join(names, " ")
}

// queueUp starts a worker that works once in w, and waits until it is queued.
func (w *workplace) queueUp(who string, c *dibs.Client, work time.Duration, options ...dibs.Option) {
	w.t.Helper()
	go func() {
		l, err := c.Mutex("n").Lock(w.t.Context(), options...)
		if err != nil {
			w.t.Errorf("%s: %v", who, err)
			return
		}
		w.enter(who, l, work)
		if err := l.Unlock(); err != nil {
			w.t.Errorf("%s: unlock: %v", who, err)
		}
	}()
	synctest.Wait()
}

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
				a, b := open(t, s, dibs.Cohort(batch, 0)), open(t, s)
				w := workplace{t: t}
				first := lock(t, a, "n")
				for i := 2; i <= 6; i++ {
					w.queueUp(fmt.Sprint("a", i), a, time.Millisecond)
					if i == 3 {
						w.queueUp("b1", b, time.Millisecond)
						w.queueUp("b2", b, time.Millisecond)
					}
				}
				w.enter("a1", first, time.Millisecond)
				wantErr(t, first.Unlock())
				time.Sleep(time.Second)
				if got := w.order(); got != want {
					t.Errorf("order %s, want %s", got, want)
				}
				wantFree(t, s, "n")
			})
		})
	}
}

// Without waiters of other processes, one lease serves all calls, for at most a second.
func TestCohortWithoutOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		a := open(t, f, dibs.Cohort(2, 0))
		w := workplace{t: t}
		first := lock(t, a, "n")
		const callers = 500
		for i := range callers {
			w.queueUp(fmt.Sprint(i), a, time.Millisecond)
		}
		wantErr(t, first.Unlock())
		time.Sleep(900 * time.Millisecond)
		_ = w.order()
		if len(w.entries) != callers {
			t.Errorf("%d of %d calls were served", len(w.entries), callers)
		}
		f.mu.Lock()
		acquires := f.acquires
		f.mu.Unlock()
		if acquires != 1 {
			t.Errorf("%d acquires, want 1", acquires)
		}
		wantFree(t, s, "n")
	})
}

// Calls that work for no time do not use up their batch before the store has said that no
// other process waits.
func TestCohortAwaitsTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		const trip = 5 * time.Millisecond
		f.set(func(f *faulty) {
			f.notify = func(ctx context.Context, r driver.WantedRequest) (bool, error) {
				time.Sleep(trip)
				return s.NotifyWanted(ctx, r)
			}
			f.resize = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				time.Sleep(trip)
				return s.Resize(ctx, c)
			}
		})
		a := open(t, f, dibs.Cohort(2, 0))
		w := workplace{t: t}
		first := lock(t, a, "n")
		for i := range 200 {
			w.queueUp(fmt.Sprint(i), a, 0)
		}
		begin := time.Now()
		wantErr(t, first.Unlock())
		waitUntilFree(t, s, "n")
		if took := time.Since(begin); took > 3*trip {
			t.Errorf("took %v", took)
		}
		if _ = w.order(); len(w.entries) != 200 {
			t.Errorf("%d calls were served", len(w.entries))
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.acquires != 1 {
			t.Errorf("%d acquires, want 1", f.acquires)
		}
	})
}

// A cohort whose callers never stop releases the lock once a second, although it does not
// know that anybody waits. So a waiter whose notification was lost is served.
func TestCohortTenure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.notify = func(context.Context, driver.WantedRequest) (bool, error) { return false, nil }
		})
		a, b := open(t, f, dibs.Cohort(8, 0)), open(t, s)
		stop := make(chan struct{})
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					l := lock(t, a, "n")
					time.Sleep(time.Millisecond)
					wantErr(t, l.Unlock())
				}
			})
		}
		time.Sleep(300 * time.Millisecond)
		begin := time.Now()
		l := lock(t, b, "n")
		if took := time.Since(begin); took < 500*time.Millisecond || took > 800*time.Millisecond {
			t.Errorf("another process waited for %v", took)
		}
		wantErr(t, l.Unlock())
		close(stop)
		workers.Wait()
	})
}

// An unlock between calls of one process sends nothing to the store.
func TestCohortPassSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		a := open(t, f, dibs.Cohort(32, time.Second))
		wantErr(t, lock(t, a, "n").Unlock())
		time.Sleep(100 * time.Millisecond) // the cohort has fences for 0.1 s
		calls := func() string {
			f.mu.Lock()
			defer f.mu.Unlock()
			return fmt.Sprint(f.acquires, f.notifies)
		}
		f.set(func(f *faulty) {
			f.release = func(context.Context, driver.ReleaseRequest) (bool, error) {
				t.Error("a release")
				return false, errReset
			}
			f.resize = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				return s.Resize(ctx, c) // fences for the next calls, in the background
			}
		})
		before := calls()
		for range 100 {
			wantErr(t, lock(t, a, "n").Unlock())
		}
		if after := calls(); after != before {
			t.Errorf("requests %s before and %s after", before, after)
		}
		f.heal()
		if took := waitUntilFree(t, s, "n"); took > time.Second+10*time.Millisecond {
			t.Errorf("it lingered for %v", took)
		}
	})
}

// raise sets a maximum, which several goroutines raise.
func raise(most *atomic.Uint64, n uint64) {
	for last := most.Load(); last < n && !most.CompareAndSwap(last, n); last = most.Load() {
	}
}

// No lease has a fence that the store has not issued so far.
func TestCohortFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		var issued atomic.Uint64
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				reply, err := s.Acquire(ctx, c)
				raise(&issued, reply.Fence)
				return reply, err
			}
			f.resize = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				reply, err := s.Resize(ctx, c)
				raise(&issued, reply.Fence)
				return reply, err
			}
		})
		a := open(t, f, dibs.Cohort(32, time.Second))
		last := uint64(0)
		for range 5000 {
			l := lock(t, a, "n")
			if l.Fence() <= last || l.Fence() > issued.Load() {
				t.Fatalf("fence %d after %d, while the store has issued %d", l.Fence(), last, issued.Load())
			}
			last = l.Fence()
			wantErr(t, l.Unlock())
		}
	})
}

// Fences stay close to the clock of the store, as long as the calls need less than one for
// each µs, however many names have cohorts.
func TestCohortFencesFollowTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.resize = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				time.Sleep(50 * time.Microsecond)
				return s.Resize(ctx, c)
			}
		})
		a := open(t, f, dibs.Cohort(8, 100*time.Millisecond))
		for i := range 2000 {
			for range 3 {
				l := lock(t, a, fmt.Sprint("n", i%100))
				if ahead := int64(l.Fence()) - time.Now().UnixMicro(); ahead > 100 {
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
		a, b := open(t, s, dibs.Cohort(8, 5*time.Second)), open(t, s)
		wantErr(t, lock(t, a, "n").Unlock())
		if took := waitUntilFree(t, s, "n"); took < 5*time.Second || took > 5*time.Second+time.Millisecond {
			t.Errorf("it lingered for %v", took)
		}

		wantErr(t, lock(t, a, "n").Unlock())
		time.Sleep(4 * time.Second)
		wantErr(t, lock(t, a, "n").Unlock()) // each use starts the time again
		time.Sleep(900 * time.Millisecond)
		if _, err := b.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("a try during linger: %v", err)
		}

		begin := time.Now()
		l := lock(t, b, "n") // it is released at once for a call that waits
		if took := time.Since(begin); took != 0 {
			t.Errorf("another process waited for %v", took)
		}
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
	})
}

// A loss of the store lease ends the lease of the holder, and those who wait go on.
func TestCohortLoss(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, c *dibs.Client, s driver.Store, f *faulty, l *dibs.Lease) dibs.Reason{
		"revoked": func(t *testing.T, c *dibs.Client, s driver.Store, _ *faulty, l *dibs.Lease) dibs.Reason {
			if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: l.Token(), Reason: "stuck"}); err != nil {
				t.Error(err)
			}
			return dibs.ReasonRevoked
		},
		"taken": func(t *testing.T, c *dibs.Client, s driver.Store, _ *faulty, l *dibs.Lease) dibs.Reason {
			if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: l.Token()}); err != nil {
				t.Error(err)
			}
			return dibs.ReasonTaken
		},
		"expired": func(t *testing.T, _ *dibs.Client, _ driver.Store, f *faulty, _ *dibs.Lease) dibs.Reason {
			f.hangAll()
			time.AfterFunc(40*time.Second, f.heal)
			return dibs.ReasonExpired
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, s := newFaulty()
				a := open(t, f, dibs.Cohort(8, 0))
				losses := make(chan dibs.Lost, 9)
				hooks := dibs.Observe(dibs.Hooks{Lost: func(_ context.Context, e dibs.Lost) { losses <- e }})
				first := lock(t, a, "n", hooks)
				w := workplace{t: t}
				w.queueUp("next", a, time.Millisecond, hooks)
				w.queueUp("last", a, time.Millisecond, hooks)
				reason := lose(t, a, s, f, first)
				<-first.Context().Done()
				var lost *dibs.LostError
				if !errors.As(first.Err(), &lost) || lost.Reason != reason || lost.Name != "n" {
					t.Errorf("lost: %v, want %v", first.Err(), reason)
				}
				wantErr(t, context.Cause(first.Context()), dibs.ErrLost)
				wantErr(t, first.Unlock(), dibs.ErrLost)
				time.Sleep(2 * time.Minute)
				if got := w.order(); got != "next last" {
					t.Errorf("served: %s", got)
				}
				if len(losses) != 1 {
					t.Errorf("%d losses were reported, want 1", len(losses))
				}
				wantFree(t, s, "n")
			})
		})
	}
}

// A process that dies in the middle of a block of fences blocks the name for one TTL, and the
// next holder has a larger fence than all its leases.
func TestCohortCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		a, b := open(t, f, dibs.Cohort(8, time.Second), dibs.TTL(10*time.Second)), open(t, s)
		var last uint64
		for range 100 {
			l := lock(t, a, "n")
			last = l.Fence()
			wantErr(t, l.Unlock())
		}
		synctest.Wait()
		f.hangAll()
		time.AfterFunc(time.Minute, f.heal) // Close must end
		begin := time.Now()
		l := lock(t, b, "n")
		if took := time.Since(begin); took > 10*time.Second+50*time.Millisecond {
			t.Errorf("the name was blocked for %v", took)
		}
		if l.Fence() <= last {
			t.Errorf("fence %d after %d", l.Fence(), last)
		}
		wantErr(t, l.Unlock())
		time.Sleep(2 * time.Minute)
	})
}

// MaxHold ends one lease. Its token is then not used any more.
func TestCohortMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a := open(t, s, dibs.Cohort(8, time.Second))
		begin := time.Now()
		l := lock(t, a, "n", dibs.MaxHold(3*time.Second))
		if until := l.Deadline(); until.Sub(begin) != 3*time.Second {
			t.Errorf("deadline after %v", until.Sub(begin))
		}
		w := workplace{t: t}
		w.queueUp("next", a, time.Millisecond)
		<-l.Context().Done()
		if held := time.Since(begin); held != 3*time.Second {
			t.Errorf("held for %v", held)
		}
		var lost *dibs.LostError
		if !errors.As(l.Err(), &lost) || lost.Reason != dibs.ReasonMaxHold {
			t.Errorf("lost: %v", l.Err())
		}
		time.Sleep(time.Second)
		if got := w.order(); got != "next" || w.entries[0].token == l.Token() {
			t.Errorf("served: %q, with the token of the lost lease: %v", got, w.entries[0].token == l.Token())
		}
		if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: l.Token()}); released || err != nil {
			t.Errorf("the token is still in use: %v", err)
		}
		wantErr(t, l.Unlock(), dibs.ErrLost)
	})
}

func TestCohortTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := open(t, s, dibs.Cohort(8, time.Second)), open(t, s)
		try := func(c *dibs.Client) (*dibs.Lease, error) { return c.Mutex("n").TryLock(t.Context()) }

		l, err := try(a) // the store decides
		wantErr(t, err)
		if _, err := try(b); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("another process: %v", err)
		}
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")

		l = lock(t, a, "n")
		var busy *dibs.BusyError
		if _, err := try(a); !errors.As(err, &busy) || busy.Holder != l.Token() || busy.Remaining <= 0 {
			t.Errorf("a try while it is held: %v", err)
		}
		wantErr(t, l.Unlock())
		again, err := try(a) // it lingers
		wantErr(t, err)
		if again.Token() != l.Token() || again.Fence() <= l.Fence() {
			t.Errorf("token %s and fence %d after %s and %d", again.Token(), again.Fence(), l.Token(), l.Fence())
		}
		wantErr(t, again.Unlock())

		l = lock(t, b, "n")
		if _, err := try(a); !errors.As(err, &busy) || busy.Holder != l.Token() {
			t.Errorf("a try while another process holds: %v", err)
		}
		wantErr(t, l.Unlock())
	})
}

// A call that tries once does not overtake those of its cohort that wait. The store does not
// know of them while it releases the last store lease, or the next request is on its way.
func TestCohortTryDoesNotOvertake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		a := open(t, f, dibs.Cohort(8, 0))
		held := lock(t, a, "n")
		answer, arrive := make(chan struct{}), make(chan struct{})
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				released, err := s.Release(ctx, r)
				<-answer
				return released, err
			}
			f.acquire = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				if c.Queue {
					<-arrive
				}
				return s.Acquire(ctx, c)
			}
		})
		tryInVain := func(when string) {
			l, err := a.Mutex("n").TryLock(t.Context())
			if !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("a try %s: acquired %t, error %v, want ErrBusy", when, l != nil, err)
			}
		}

		unlocked := make(chan error, 1)
		go func() { unlocked <- held.Unlock() }()
		synctest.Wait()
		w := workplace{t: t}
		w.queueUp("one", a, time.Millisecond)
		tryInVain("before the answer to the release")
		close(answer)
		wantErr(t, <-unlocked)
		synctest.Wait()
		tryInVain("before the next request has arrived")
		close(arrive)
		time.Sleep(time.Second)
		if got := w.order(); got != "one" {
			t.Errorf("served: %q", got)
		}

		f.heal()
		l, err := a.Mutex("n").TryLock(t.Context()) // nobody waits
		wantErr(t, err)
		wantErr(t, l.Unlock())
	})
}

// A call that gives up leaves nothing behind, wherever it waits.
func TestCohortGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := open(t, s, dibs.Cohort(8, 0)), open(t, s)
		theirs := lock(t, b, "n")
		var busy *dibs.BusyError
		begin := time.Now()
		_, err := a.Mutex("n").Lock(t.Context(), dibs.Wait(time.Second))
		if !errors.As(err, &busy) || busy.Holder != theirs.Token() || busy.Remaining != 29*time.Second || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.Mutex("n").Lock(ctx)
		wantErr(t, err, dibs.ErrBusy, context.DeadlineExceeded)
		synctest.Wait()
		if state, err := s.Inspect(t.Context(), "n"); err != nil || state.Waiting != 0 {
			t.Errorf("%d waiters are left, %v", state.Waiting, err)
		}
		wantErr(t, theirs.Unlock())

		mine := lock(t, a, "n")
		w := workplace{t: t}
		w.queueUp("one", a, time.Millisecond)
		_, err = a.Mutex("n").Lock(t.Context(), dibs.Wait(time.Second))
		if !errors.As(err, &busy) || busy.Holder != mine.Token() || busy.Ahead != 1 {
			t.Errorf("while this process holds: %v", err)
		}
		wantErr(t, mine.Unlock())
		time.Sleep(time.Second)
		if got := w.order(); got != "one" {
			t.Errorf("served: %q", got)
		}
		wantFree(t, s, "n")

		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Mutex("n").Lock(cancelled)
		wantErr(t, err, context.Canceled)
		if errors.Is(err, dibs.ErrBusy) {
			t.Errorf("nothing was asked: %v", err)
		}
	})
}

// A store that cannot be reached fails each call that waits.
func TestCohortUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		f.set(func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, errReset
			}
		})
		a := open(t, f, dibs.Cohort(8, 0))
		errs := make(chan error, 3)
		for i := range 3 {
			go func() {
				_, err := a.Mutex("n").Lock(t.Context(), dibs.Wait(time.Duration(i+1)*100*time.Millisecond))
				errs <- err
			}()
		}
		for range 3 {
			wantErr(t, <-errs, dibs.ErrUnavailable)
		}
		f.heal()
		wantErr(t, lock(t, a, "n").Unlock())
	})
}

// If the store issues no further fence, the lock is released instead of passed on.
func TestCohortWithoutFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.resize = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &dibs.UnavailableError{Op: "resize", Cause: errors.New("no"), Refused: true}
			}
		})
		a := open(t, f, dibs.Cohort(8, time.Second))
		w := workplace{t: t}
		first := lock(t, a, "n")
		w.queueUp("two", a, time.Millisecond)
		w.queueUp("three", a, time.Millisecond)
		w.enter("one", first, time.Millisecond)
		wantErr(t, first.Unlock())
		time.Sleep(5 * time.Second)
		if got := w.order(); got != "one two three" {
			t.Errorf("served: %q", got)
		}
		wantFree(t, s, "n")
	})
}

func TestCohortClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a := dibs.New(s, dibs.Cohort(8, time.Second))
		lingering := lock(t, a, "lingering")
		wantErr(t, lingering.Unlock())
		l := lock(t, a, "n", dibs.MaxHold(time.Hour))
		errs := make(chan error, 1)
		go func() {
			_, err := a.Mutex("n").Lock(t.Context())
			errs <- err
		}()
		synctest.Wait()
		wantErr(t, a.Close())
		wantErr(t, <-errs, dibs.ErrClosed)
		var lost *dibs.LostError
		if !errors.As(l.Err(), &lost) || lost.Reason != dibs.ReasonClosed {
			t.Errorf("lost: %v", l.Err())
		}
		wantErr(t, l.Unlock(), dibs.ErrLost)
		_, err := a.Mutex("n").Lock(t.Context())
		wantErr(t, err, dibs.ErrClosed)
		wantFree(t, s, "n")
		wantFree(t, s, "lingering")
	})
}

// What users do with a lease works with that of a cohort.
func TestCohortLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a := open(t, s, dibs.Cohort(8, 0), dibs.TTL(6*time.Second))
		m := a.Mutex("n")

		wantErr(t, m.Do(t.Context(), func(ctx context.Context) error {
			wantErr(t, a.Holds(ctx, "n"))
			if dibs.Fence(ctx) == 0 {
				t.Error("no fence")
			}
			if _, err := m.Lock(ctx); !errors.Is(err, dibs.ErrReentrant) {
				t.Errorf("without Reentrant: %v", err)
			}
			return m.Do(ctx, func(ctx context.Context) error { return a.Holds(ctx, "n") }, dibs.Reentrant())
		}))

		l := lock(t, a, "n")
		if left := time.Until(l.Deadline()); left <= 5*time.Second || left > 6*time.Second {
			t.Errorf("%v left", left)
		}
		wantErr(t, l.Extend(t.Context(), time.Minute))
		if left := time.Until(l.Deadline()); left <= 50*time.Second {
			t.Errorf("%v left after Extend", left)
		}
		time.Sleep(time.Hour)
		wantErr(t, l.Err())
		wantErr(t, l.Unlock())
		wantErr(t, l.Err(), dibs.ErrReleased)
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
	})
}

// What concerns one lease in the store is rejected for those of a cohort, which share one. The
// call keeps its lease.
func TestCohortRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := open(t, s, dibs.Cohort(8, time.Second)), open(t, s)
		w := workplace{t: t}
		wantErr(t, a.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			w.queueUp("local", a, time.Millisecond)
			w.queueUp("remote", b, time.Millisecond)
			wantErr(t, dibs.Yield(ctx), dibs.ErrInvalid)
			if held := driver.HeldIn(ctx); len(held) != 1 || !held[0].Shared {
				t.Errorf("held %+v, want a shared lease", held)
			}
			return a.Holds(ctx, "n")
		}))
		time.Sleep(time.Second)
		if got := w.order(); got != "local remote" {
			t.Errorf("served %q", got)
		}

		l := lock(t, a, "n")
		wantErr(t, l.Detach(), dibs.ErrInvalid)
		if l.Wanted() != nil {
			t.Error("Wanted is not nil")
		}
		_, err := a.Attach("n", l.Token())
		wantErr(t, err, dibs.ErrInvalid)
		wantErr(t, l.Err())
		wantErr(t, l.Unlock())
		_, err = a.Attach("n", l.Token()) // it lingers
		wantErr(t, err, dibs.ErrInvalid)
		time.Sleep(time.Minute)
		wantFree(t, s, "n")
	})
}

func TestCohortHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var mu sync.Mutex
		var events []string
		record := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf(format, args...))
		}
		a := open(t, s, dibs.Cohort(8, 0), dibs.Observe(dibs.Hooks{
			AcquireStart: func(_ context.Context, e dibs.AcquireStart) context.Context { record("start %s", e.Label); return nil },
			Queued:       func(_ context.Context, e dibs.Queued) { record("queued %s behind %d", e.Label, e.Position-1) },
			AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) {
				record("end %s queued=%v token=%v ttl=%v waited=%v", e.Label, e.Queued, e.Token != "", e.TTL, e.Waited)
			},
			Released: func(_ context.Context, e dibs.Released) { record("released %s after %v, %v", e.Label, e.Held, e.Err) },
		}))
		l := lock(t, a, "n", dibs.Label("one"))
		w := workplace{t: t}
		w.queueUp("two", a, 3*time.Second, dibs.Label("two"))
		time.Sleep(time.Second)
		wantErr(t, l.Unlock())
		time.Sleep(time.Minute)
		want := []string{
			"start one", "end one queued=false token=true ttl=30s waited=0s",
			"start two", "queued two behind 0",
			"released one after 1s, <nil>",
			"end two queued=true token=true ttl=30s waited=1s",
			"released two after 3s, <nil>",
		}
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(events)
		slices.Sort(want)
		if !slices.Equal(events, want) {
			t.Errorf("events:\n%s", strings.Join(events, "\n"))
		}
	})
}

func TestCohortInvalid(t *testing.T) {
	a := open(t, memstore.New())
	for name, options := range map[string][]dibs.Option{
		"negative batch":  {dibs.Cohort(-1, 0)},
		"large batch":     {dibs.Cohort(1_000_001, 0)},
		"negative linger": {dibs.Cohort(1, -1)},
		"long linger":     {dibs.Cohort(1, 4*time.Second), dibs.TTL(10 * time.Second)},
	} {
		if _, err := a.Mutex("n").Lock(t.Context(), options...); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Many goroutines of several clients, with short waits, keep each other out.
func TestCohortExclusion(t *testing.T) {
	s := memstore.New()
	var section history.Section
	var workers sync.WaitGroup
	for i := range 4 {
		linger := time.Duration(i%2) * time.Millisecond
		c := open(t, s, dibs.Cohort(i, linger))
		for g := range 8 {
			workers.Go(func() {
				for n := range 300 {
					wait := time.Duration(-1)
					if (n+g)%5 == 0 {
						wait = time.Duration(n%7) * time.Millisecond
					}
					options := []dibs.Option{dibs.TTL(time.Second)}
					if wait >= 0 {
						options = append(options, dibs.Wait(wait))
					}
					l, err := c.Mutex("n").Lock(t.Context(), options...)
					if errors.Is(err, dibs.ErrBusy) && wait >= 0 {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					section.Visit(t, l.Fence())
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	workers.Wait()
	waitUntilFree(t, s, "n")
}

// A lease that is lost by itself, here after MaxHold, is not passed on: the next call gets
// another lease of the store, and keeps it. Which goroutine runs first is not certain, so there
// are many.
func TestCohortLostLeaseIsNotPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New(), dibs.Cohort(8, 0))
		var calls sync.WaitGroup
		for i := range 500 {
			name := fmt.Sprint("n", i)
			first := lock(t, c, name, dibs.MaxHold(300*time.Millisecond)) // the cohort would keep the lease for 1 s
			calls.Go(func() {
				next := lock(t, c, name)
				wantErr(t, first.Err(), dibs.ErrLost)
				if next.Token() == first.Token() || next.Fence() <= first.Fence() {
					t.Errorf("the lost lease was passed on: token %q, fence %d after %d", next.Token(), next.Fence(), first.Fence())
				}
				time.Sleep(time.Minute)
				wantErr(t, next.Err())
				wantErr(t, next.Unlock())
			})
		}
		calls.Wait()
	})
}
