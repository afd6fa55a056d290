package cohort_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// storeToken returns the store lease's token.
func storeToken(t *testing.T, s driver.Store) driver.Holder {
	t.Helper()
	state, err := driver.Complete(s).Inspect(t.Context(), "n")
	if err != nil || len(state.Holders) != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
	return state.Holders[0]
}

// Losing the store lease should end the holder's lease, and the waiters should get another.
func TestCohortLoss(t *testing.T) {
	for reason, lose := range map[dibs.Reason]func(t *testing.T, n *network, h driver.Holder){
		dibs.ReasonRevoked: func(t *testing.T, n *network, h driver.Holder) {
			revoked, err := open(t, n.Store).Revoke(t.Context(), "n", dibs.Holder{Fence: h.Fence}, "stuck") // the fence that Inspect shows
			if err != nil || !revoked {
				t.Error(revoked, err)
			}
		},
		dibs.ReasonMissing: func(t *testing.T, n *network, h driver.Holder) {
			_, err := n.Store.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: h.Token})
			wantErr(t, err)
		},
		dibs.ReasonExpired: func(_ *testing.T, n *network, _ driver.Holder) {
			n.hang()
			time.AfterFunc(40*time.Second, n.heal)
		},
	} {
		t.Run(string(reason), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork()
				losses := make(chan dibs.Lost, 9)
				hooks := dibs.Observe(dibs.Hooks{Lost: func(_ context.Context, e dibs.Lost) { losses <- e }})
				c := open(t, n)
				a := cohort.New(c.Mutex("n", hooks), cohort.Passes(8))
				before := lock(t, a)
				var first *cohort.Lease
				locked := make(chan struct{})
				go func() {
					defer close(locked)
					first = lock(t, a)
				}()
				synctest.Wait()
				wantErr(t, before.Unlock())
				<-locked // its fence differs from the store lease's
				w := workplace{t: t}
				w.queueUp("next", w.local(a), time.Millisecond)
				w.queueUp("last", w.local(a), time.Millisecond)
				lose(t, n, storeToken(t, n))
				select {
				case <-first.Context().Done():
				case <-time.After(time.Hour):
					t.Fatal("its context does not end")
				}
				wantLost(t, first.Err(), reason)
				wantErr(t, context.Cause(first.Context()), dibs.ErrLost)
				wantErr(t, first.Unlock(), dibs.ErrLost)
				time.Sleep(2 * time.Minute)
				if got := w.order(); got != "next last" {
					t.Errorf("served: %s", got)
				}
				if len(losses) != 1 {
					t.Errorf("%d losses were reported, want 1", len(losses))
				}
				wantFree(t, n)
			})
		})
	}
}

// A store lease lost at the moment when it is passed on is not received.
func TestCohortLossWhilePassed(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			a, b := group(t, s, 8, 0), open(t, s)
			first := lock(t, a)
			next := make(chan *cohort.Lease, 1)
			go func() { next <- lock(t, a) }()
			synctest.Wait()
			revoked, err := b.Revoke(t.Context(), "n", dibs.Holder{Fence: storeToken(t, s).Fence}, "")
			if err != nil || !revoked {
				t.Fatal(revoked, err)
			}
			_ = first.Unlock() // before or after its client notices it
			l := <-next
			wantErr(t, l.Err())
			wantErr(t, l.Unlock())
			wantFree(t, s)
		})
	}
}

// A process that dies in the middle of a block of fences must block the name for one TTL. The
// next holder's fence must be larger than in all its leases.
func TestCohortCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a, b := group(t, n, 8, time.Second, dibs.TTL(10*time.Second)), open(t, n.Store)
		var last uint64
		for range 100 {
			l := lock(t, a)
			last = l.Fence()
			wantErr(t, l.Unlock())
		}
		synctest.Wait()
		n.hang()
		time.AfterFunc(time.Minute, n.heal) // Close must end
		begin := time.Now()
		l := lockMutex(t, b)
		wantTook(t, begin, 10*time.Second, 10*time.Second+50*time.Millisecond)
		if l.Fence() <= last {
			t.Errorf("fence %d after %d", l.Fence(), last)
		}
		wantErr(t, l.Unlock())
		time.Sleep(2 * time.Minute)
	})
}

// MaxHold ends a single lease. Its store lease is released: it is not passed on, and does not
// linger.
func TestCohortMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a := group(t, s, 8, time.Second)
		begin := time.Now()
		const hold = 500 * time.Millisecond // shorter than a tenure
		l := lock(t, a, dibs.MaxHold(hold))
		token := storeToken(t, s).Token
		if until := l.Deadline(); until.Sub(begin) != hold {
			t.Errorf("deadline after %v", until.Sub(begin))
		}
		w := workplace{t: t}
		w.queueUp("next", w.local(a), time.Second)
		<-l.Context().Done()
		wantTook(t, begin, hold, hold)
		wantLost(t, l.Err(), dibs.ReasonMaxHold)
		synctest.Wait()
		if h := storeToken(t, s); h.Token == token {
			t.Error("the store lease of a lost lease was passed on")
		}
		wantErr(t, l.Unlock(), dibs.ErrLost)
		waitUntilFree(t, s)
		if got := w.order(); got != "next" {
			t.Errorf("served: %q", got)
		}

		l = lock(t, a, dibs.MaxHold(hold))
		time.Sleep(hold)
		wantFree(t, s)
		wantErr(t, l.Unlock(), dibs.ErrLost)
	})
}

// Err compares the clock with the end of MaxHold, even before the timer runs.
func TestCohortErrAfterMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		l := lock(t, group(t, s, 8, 0), dibs.MaxHold(time.Second))
		l.StopTimer()
		time.Sleep(999 * time.Millisecond)
		wantErr(t, l.Err())
		time.Sleep(time.Millisecond)
		wantLost(t, l.Err(), dibs.ReasonMaxHold)
		wantErr(t, l.Unlock(), dibs.ErrLost)
		wantFree(t, s)
	})
}

// Wanted should be closed for another call in the cohort, and in another process. If the latter's
// notification is lost, the store lease's renewals ask again.
func TestCohortWanted(t *testing.T) {
	for name, lost := range map[string]bool{"notified": false, "notification lost": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork()
				a, b := group(t, n, 8, 0), open(t, n.Store)
				l := lock(t, a)
				wanted := l.Wanted()
				synctest.Wait()
				if isClosed(wanted) {
					t.Error("nobody waits")
				}
				n.set(func(n *network) { n.silent = lost })
				begin := time.Now()
				w := workplace{t: t}
				w.queueUp("remote", w.remote(b), 0)
				<-wanted
				if latest := 11 * time.Second; lost { // a third of the TTL
					wantTook(t, begin, 0, latest)
				} else {
					wantTook(t, begin, 0, 0)
				}
				wantErr(t, l.Unlock())
				n.set(func(n *network) { n.silent = false })
				time.Sleep(time.Minute)

				l = lock(t, a)
				wanted = l.Wanted()
				synctest.Wait() // the store replied: nobody else waits
				w.queueUp("local", w.local(a), 0)
				if !isClosed(wanted) {
					t.Error("a call of the cohort waits")
				}
				wantErr(t, l.Unlock())
				time.Sleep(time.Second)
				if got := w.order(); got != "remote local" {
					t.Errorf("served: %q", got)
				}
			})
		})
	}
}

// Each call should have its own limits, whatever the others' are. The requests continue in the
// background.
func TestCohortLimitsOfACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a := group(t, n, 8, 0, dibs.Timeout(20*time.Second))
		l := lock(t, a, dibs.Timeout(100*time.Millisecond))
		n.hang()
		begin := time.Now()
		err := l.Unlock()
		var u *dibs.UnavailableError
		if !errors.As(err, &u) || !u.Unknown || u.Op != "unlock" {
			t.Errorf("unlock: %v", err)
		}
		wantTook(t, begin, 100*time.Millisecond, 100*time.Millisecond)

		begin = time.Now()
		_, err = a.Lock(t.Context(), dibs.Timeout(50*time.Millisecond), dibs.Wait(50*time.Millisecond))
		wantErr(t, err, dibs.ErrUnavailable)
		wantTook(t, begin, 50*time.Millisecond, 50*time.Millisecond)
		n.heal()
		time.Sleep(time.Minute)
		wantErr(t, lock(t, a).Unlock())
		wantFree(t, n)

		n.hang()
		begin = time.Now()
		var calls sync.WaitGroup
		for i := 1; i <= 3; i++ {
			timeout := time.Duration(i) * 100 * time.Millisecond
			calls.Go(func() {
				_, err := a.Lock(t.Context(), dibs.Timeout(timeout))
				if !errors.Is(err, dibs.ErrUnavailable) || errors.Is(err, dibs.ErrBusy) {
					t.Errorf("Timeout %v: %v", timeout, err)
				}
				wantTook(t, begin, timeout, timeout)
			})
		}
		calls.Wait()
		n.heal()
		time.Sleep(time.Minute)
		wantFree(t, n)
	})
}

// A call with a short Wait ends in time although the client cannot queue yet, because its
// subscription hangs.
func TestCohortWaitOfANewClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		theirs := lockMutex(t, open(t, n.Store))
		n.set(func(n *network) { n.silent = true })
		a := group(t, n, 8, 0)
		begin := time.Now()
		_, err := a.Lock(t.Context(), dibs.Wait(20*time.Millisecond))
		wantErr(t, err, dibs.ErrBusy)
		wantTook(t, begin, 20*time.Millisecond, 20*time.Millisecond)
		wantErr(t, theirs.Unlock())
		time.Sleep(time.Minute)
		wantFree(t, n)
	})
}

// Inspect should show the label of the call that holds the lock.
func TestCohortLabels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a := group(t, s, 8, time.Second)
		for _, label := range []string{"web", "web", "report", ""} {
			l := lock(t, a, dibs.Label(label))
			if h := storeToken(t, s); h.Label != label {
				t.Errorf("label %q, want %q", h.Label, label)
			}
			wantErr(t, l.Unlock())
		}
	})
}

// Contexts should end in time, and so should calls, when many calls in a cohort time out together,
// while the store hangs.
func TestCohortManyTimeouts(t *testing.T) {
	const callers = 60_000
	n := newNetwork()
	c := dibs.New(n, dibs.TTL(time.Second))
	a := cohort.New(c.Mutex("n"), cohort.Passes(8))
	l := lock(t, a)
	n.hang()
	deadline := l.Deadline()
	var late atomic.Int64
	done := make(chan time.Duration, 1)
	ctx := l.Context()
	context.AfterFunc(ctx, func() { done <- time.Since(deadline) })
	// The calls time out at the moment in which the lease ends.
	within, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			_, err := a.Lock(within)
			if err == nil {
				t.Error("a call has a lease")
			}
			if d := int64(time.Since(deadline)); d > late.Load() {
				late.Store(d)
			}
		})
	}
	calls.Wait()
	context := <-done
	t.Logf("the context ended %v after the deadline, the last call returned after %v", context, time.Duration(late.Load()))
	// On a busy machine the calls need seconds to run at all; a walk over the list for each takes minutes.
	if context > time.Second || time.Duration(late.Load()) > 20*time.Second {
		t.Errorf("the context ended %v late, the last call %v", context, time.Duration(late.Load()))
	}
	n.heal()
	wantErr(t, l.Unlock(), dibs.ErrLost)
	wantErr(t, c.Close())
}

// After the store's clock was an hour ahead, a request still reserves as many fences.
func TestCohortAfterAClockStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ahead atomic.Int64
		s := memstore.New(memstore.Clock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
		n := &network{Store: s, calls: make(map[string]int)}
		ahead.Store(int64(time.Hour))
		c := open(t, n)
		wantErr(t, lockMutex(t, c).Unlock())
		ahead.Store(0)
		a := cohort.New(c.Mutex("n"), cohort.IdleHold(time.Second))
		last := uint64(0)
		for range 10_000 {
			l := lock(t, a)
			if l.Fence() <= last {
				t.Fatalf("fence %d after %d", l.Fence(), last)
			}
			last = l.Fence()
			wantErr(t, l.Unlock())
		}
		if requests := n.count("fences"); requests > 100 || n.count("acquire") > 20 {
			t.Errorf("%d requests for fences and %d acquires", requests, n.count("acquire"))
		}
	})
}

// A store outage fails each call that does not know of others, after its own Timeout.
func TestCohortUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		refusal := error(&driver.UnavailableError{Op: "acquire", Cause: errors.New("OOM"), Refused: true})
		n.set(func(n *network) { n.before = func(context.Context, string) error { return refusal } })
		a := group(t, n, 8, 0)
		begin := time.Now()
		_, err := a.Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		wantTook(t, begin, 0, 0)
		n.heal()
		wantErr(t, lock(t, a).Unlock())
	})
}

// A call that knows that others hold the lock survives a store outage, even if the store rejects
// requests.
func TestCohortWaiterSurvivesOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		theirs := lockMutex(t, open(t, n.Store))
		a := group(t, n, 8, 0)
		w := workplace{t: t}
		w.queueUp("one", w.local(a), 0)
		refusal := error(&driver.UnavailableError{Op: "acquire", Cause: errors.New("OOM"), Refused: true})
		n.set(func(n *network) { n.before = func(context.Context, string) error { return refusal } })
		begin := time.Now()
		_, err := a.Lock(t.Context(), dibs.Wait(time.Minute))
		wantErr(t, err, dibs.ErrBusy)
		wantTook(t, begin, time.Minute, time.Minute)
		time.Sleep(4 * time.Minute)
		n.heal()
		wantErr(t, theirs.Unlock())
		time.Sleep(10 * time.Second)
		if got := w.order(); got != "one" {
			t.Errorf("served: %q", got)
		}
	})
}

// The same should hold when another call in the cohort held the lock, and the next store lease is
// refused.
func TestCohortWaiterSurvivesRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a := group(t, n, 8, 0)
		first := lock(t, a)
		w := workplace{t: t}
		w.queueUp("one", w.local(a), 0)
		refusal := error(&driver.UnavailableError{Op: "acquire", Cause: errors.New("OOM"), Refused: true})
		n.set(func(n *network) {
			n.before = func(_ context.Context, op string) error {
				if op == "acquire" {
					return refusal
				}
				return nil
			}
		})
		time.Sleep(2 * time.Second) // the tenure is over
		wantErr(t, first.Unlock())
		begin := time.Now()
		_, err := a.Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable) // it does not know of others
		wantTook(t, begin, 0, 50*time.Millisecond)
		time.Sleep(time.Minute)
		n.heal()
		time.Sleep(time.Second)
		if got := w.order(); got != "one" {
			t.Errorf("served: %q", got)
		}
		wantFree(t, n)
	})
}

// If the store reserves no fence, the lock should be released instead of passed on.
func TestCohortWithoutFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a := group(t, struct{ driver.Store }{s}, 8, time.Second)
		w := workplace{t: t}
		first := lock(t, a)
		w.queueUp("two", w.local(a), time.Millisecond)
		w.queueUp("three", w.local(a), time.Millisecond)
		w.enter("one", first, time.Millisecond)
		wantErr(t, first.Unlock())
		time.Sleep(5 * time.Second)
		if got := w.order(); got != "one two three" {
			t.Errorf("served: %q", got)
		}
		wantFree(t, s)
	})
}

// A lost reply to an acquire leaves nothing behind.
func TestCohortLostReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		var lost atomic.Bool
		n.set(func(n *network) {
			n.after = func(op string) {
				if op == "acquire" && lost.CompareAndSwap(false, true) {
					time.Sleep(10 * time.Second)
				}
			}
		})
		a := group(t, n, 8, 0)
		_, err := a.Lock(t.Context())
		if err != nil && !errors.Is(err, dibs.ErrUnavailable) {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		wantErr(t, lock(t, a).Unlock())
		time.Sleep(time.Minute)
		wantFree(t, n)
	})
}

// A process that was stopped does not pass on an expired lease, although the loss is not reported
// yet. The call that would have received it waits again, before all others.
func TestCohortAfterAStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork()
		a, b := group(t, n, 8, 0, dibs.TTL(100*time.Millisecond)), open(t, n.Store)
		first := lock(t, a)
		w := workplace{t: t}
		w.queueUp("next", w.local(a), 0)
		w.queueUp("last", w.local(a), 0)
		report := a.StopReport()
		n.hang("extend")
		time.Sleep(500 * time.Millisecond) // shorter than a tenure
		n.heal()
		w.queueUp("other", w.remote(b), time.Second)
		wantErr(t, first.Unlock(), dibs.ErrLost)
		synctest.Wait()
		report()
		time.Sleep(2 * time.Second)
		if got := w.order(); got != "other next last" {
			t.Errorf("served: %q", got)
		}
		wantFree(t, n)
	})
}

// A call should not receive a lease that was lost while it lingered, although the loss is not yet
// reported. Its token should not be used again.
func TestCohortLossWhileItLingers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := group(t, s, 8, time.Second), open(t, s)
		wantErr(t, lock(t, a).Unlock())
		synctest.Wait() // its client is subscribed; otherwise it would notice the loss only at a renewal
		lost := storeToken(t, s)
		report := a.StopReport()
		revoked, err := b.Revoke(t.Context(), "n", dibs.Holder{Fence: lost.Fence}, "")
		if err != nil || !revoked {
			t.Fatal(revoked, err)
		}
		synctest.Wait()
		l := lock(t, a)
		report()
		wantErr(t, l.Err())
		if h := storeToken(t, s); h.Token == lost.Token || l.Fence() <= lost.Fence {
			t.Errorf("token %s and fence %d after the loss of %s and %d", h.Token, l.Fence(), lost.Token, lost.Fence)
		}
		wantErr(t, l.Unlock())
	})
}

// A lateContext is seen to end only when it is open.
type lateContext struct {
	context.Context
	open chan struct{}
}

func (c lateContext) Done() <-chan struct{} {
	<-c.open
	return c.Context.Done()
}

// A call whose waiting ends at the moment when the lock is passed to it should have the lease:
// nobody else would unlock it.
func TestCohortPassToACallThatGivesUp(t *testing.T) {
	for name, options := range map[string][]dibs.Option{"context": nil, "Wait": {dibs.Wait(100 * time.Millisecond)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				a := group(t, s, 8, 0)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond+time.Duration(len(options))*time.Hour)
				defer cancel()
				late := lateContext{ctx, make(chan struct{})}
				first := lock(t, a)
				w := workplace{t: t}
				w.queueUp("late", func() (lease, error) { return a.Lock(late, options...) }, 0)
				time.Sleep(200 * time.Millisecond)
				wantErr(t, first.Unlock())
				close(late.open)
				synctest.Wait()
				if got := w.order(); got != "late" {
					t.Errorf("served: %q", got)
				}
				wantFree(t, s)
			})
		})
	}
}

// A Mutex hook that ends its goroutine should fail the waiting calls, and nothing should hang.
func TestCohortHookThatExits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var ended atomic.Bool
		hook := dibs.Observe(dibs.Hooks{AcquireEnd: func(context.Context, dibs.AcquireEnd) {
			if ended.CompareAndSwap(false, true) {
				runtime.Goexit()
			}
		}})
		a := cohort.New(open(t, s).Mutex("n", hook), cohort.Passes(8))
		_, err := a.Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		wantErr(t, lock(t, a).Unlock())
		wantFree(t, s)
	})
}

// Many calls in several cohorts and clients should exclude each other, while leases are lost and
// calls give up.
func TestCohortsExclude(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		w := workplace{t: t}
		var workers sync.WaitGroup
		for i := range 4 {
			n := &network{Store: s, calls: make(map[string]int)}
			c := open(t, n)
			a := cohort.New(c.Mutex("n"), cohort.Passes(1+i), cohort.IdleHold(time.Duration(i%2)*10*time.Millisecond))
			for j := range 4 {
				workers.Go(func() {
					for k := range 50 {
						options := []dibs.Option{}
						if k%3 == 0 {
							options = append(options, dibs.Wait(time.Duration(k)*time.Millisecond))
						}
						if k%5 == 0 {
							options = append(options, dibs.MaxHold(time.Duration(10+j)*time.Millisecond))
						}
						l, err := a.Lock(t.Context(), options...)
						if errors.Is(err, dibs.ErrBusy) {
							continue
						}
						wantErr(t, err)
						w.enter(fmt.Sprint(i), l, time.Duration(k%7)*time.Millisecond)
						wantErr(t, l.Unlock())
					}
				})
			}
		}
		workers.Wait()
		_ = w.order()
		time.Sleep(time.Minute)
		wantFree(t, s)
	})
}
