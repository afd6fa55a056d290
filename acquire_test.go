package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// wantErr requires an error that matches each of these, or no error.
func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil {
		t.Fatalf("error %v, want none", err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("error %v, want %v", err, w)
		}
	}
}

// wantFree fails the test unless the name is without holders and waiters.
func wantFree(t *testing.T, s driver.Store, name string) {
	t.Helper()
	state, err := driver.Complete(s).Inspect(t.Context(), name)
	if err != nil || len(state.Holders) > 0 || state.Waiting > 0 {
		t.Fatalf("left behind: %+v, %v", state, err)
	}
}

// waitUntilFree waits until the name is free, and returns how long that took.
func waitUntilFree(t *testing.T, s driver.Store, name string) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		state, err := driver.Complete(s).Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Holders) == 0 && state.Waiting == 0 {
			return time.Since(begin)
		}
		if time.Since(begin) > time.Hour {
			t.Fatalf("never free: %+v", state)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, c := open(t, s), open(t, s)
		l := lock(t, holder, "n", dibs.Label("payroll"))
		begin := time.Now()
		for what, try := range map[string]func() error{
			"try":     func() error { _, err := c.Mutex("n").TryLock(t.Context()); return err },
			"no wait": func() error { _, err := c.Mutex("n").Lock(t.Context(), dibs.Wait(0)); return err },
			"one":     func() error { _, err := c.Mutex("n").Lock(t.Context(), dibs.Attempts(1, time.Hour)); return err },
		} {
			err := try()
			var busy *dibs.BusyError
			if !errors.As(err, &busy) || busy.Holder != l.Token() || busy.Remaining <= 0 || busy.Cause != nil {
				t.Errorf("%s: %v", what, err)
			}
			wantErr(t, err, dibs.ErrBusy)
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("took %v", d)
		}
		_, err := c.Mutex("n").Lock(t.Context(), dibs.Attempts(10, 100*time.Millisecond))
		wantErr(t, err, dibs.ErrBusy)
		if d := time.Since(begin); d != 900*time.Millisecond {
			t.Errorf("ten attempts took %v, want 900ms", d)
		}
		_, err = c.Mutex("n").Lock(t.Context(), dibs.Wait(7*time.Second))
		wantErr(t, err, dibs.ErrBusy)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of Wait was reported as a context deadline: %v", err)
		}
		if d := time.Since(begin); d != 7900*time.Millisecond {
			t.Errorf("a wait of 7s took %v", d-900*time.Millisecond)
		}
		synctest.Wait()
		if state, _ := s.Inspect(t.Context(), "n"); state.Waiting != 0 {
			t.Errorf("%d queue entries left after the calls returned", state.Waiting)
		}
	})
}

func TestContextEndsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, c := open(t, s), open(t, s)
		lock(t, holder, "n")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Mutex("n").Lock(ctx)
		wantErr(t, err, dibs.ErrBusy, context.DeadlineExceeded)

		why := errors.New("the user left")
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { end(why) })
		_, err = c.Mutex("n").Lock(ctx)
		wantErr(t, err, dibs.ErrBusy, why)
		_, err = c.Mutex("free").Lock(ctx)
		wantErr(t, err, why)
		wantFree(t, s, "free")
	})
}

// A grant that arrives just after the caller gave up goes to the next waiter.
func TestGrantAfterGivingUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, c, third := open(t, s), open(t, s), open(t, s)
		for range 200 {
			l := lock(t, holder, "n")
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() {
				if l, err := c.Mutex("n").Lock(ctx); err == nil {
					wantErr(t, l.Unlock())
				} else {
					wantErr(t, err, dibs.ErrBusy)
				}
			})
			synctest.Wait()
			group.Go(func() {
				l := lock(t, third, "n", dibs.Wait(time.Second))
				wantErr(t, l.Unlock())
			})
			synctest.Wait()
			group.Go(cancel)
			group.Go(func() { wantErr(t, l.Unlock()) })
			group.Wait()
			synctest.Wait()
			wantFree(t, s, "n")
		}
	})
}

// A grant that arrives during the last request is accepted, even after the wait time.
func TestGrantAtTheLastMoment(t *testing.T) {
	for range 20 { // a single run would depend on chance
		bubble(t, func(t *testing.T) {
			f, good := newFaulty()
			holder, c := open(t, good), open(t, f)
			held, err := holder.Mutex("n").Lock(t.Context())
			wantErr(t, err)
			const again, wait = driver.WaiterTTL / 2, driver.WaiterTTL/2 + 100*time.Millisecond
			start := time.Now()
			f.acquire = func(ctx context.Context, q driver.AcquireRequest) (driver.AcquireReply, error) {
				answer, err := f.Store.Acquire(ctx, q)
				if time.Since(start) >= again {
					time.Sleep(2 * (wait - again))
				}
				return answer, err
			}
			time.AfterFunc(again+time.Millisecond, func() { _ = held.Unlock() })
			l, err := c.Mutex("n").Lock(t.Context(), dibs.Wait(wait))
			wantErr(t, err)
			wantErr(t, l.Unlock())
		})
	}
}

// Many waiters for a name, in one client and in several, are served in order.
func TestFirstComeFirstServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		clients := []*dibs.Client{open(t, s), open(t, s), open(t, s)}
		l := lock(t, clients[0], "n")
		var order []int
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				err := clients[i%3].Mutex("n").Do(t.Context(), func(context.Context) error {
					order = append(order, i)
					time.Sleep(time.Second)
					return nil
				})
				wantErr(t, err)
			})
			synctest.Wait()
		}
		wantErr(t, l.Unlock())
		group.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

// A lost notification costs latency: at most half a waiter TTL.
func TestLostNotification(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind != driver.EventGranted {
					on(e)
				}
			}
		})
		holder, deaf := open(t, good), open(t, f)
		l := lock(t, holder, "n")
		var released time.Time
		time.AfterFunc(10*time.Second+time.Millisecond, func() { released = time.Now(); _ = l.Unlock() })
		lock(t, deaf, "n")
		if d := time.Since(released); d > driver.WaiterTTL/2 {
			t.Errorf("entered %v after the release", d)
		}
	})
}

// Without notifications, waiters poll. The hook reports the beginning once, and the end once.
func TestPolling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		denied := errors.New("no permission")
		f.set(func(f *faulty) { f.watch = func(context.Context) error { return denied } })
		var reports atomic.Int32
		holder := open(t, good)
		deaf := open(t, f, dibs.Observe(dibs.Hooks{Degraded: func(_ context.Context, d dibs.Degraded) {
			if reports.Add(1) == 1 && !errors.Is(d.Err, denied) {
				t.Errorf("degraded: %v", d.Err)
			}
		}}))
		l := lock(t, holder, "n")
		var released time.Time
		time.AfterFunc(time.Minute, func() { released = time.Now(); _ = l.Unlock() })
		lock(t, deaf, "n")
		if d := time.Since(released); d > 100*time.Millisecond {
			t.Errorf("entered %v after the release", d)
		}
		if reports.Load() != 1 {
			t.Errorf("Degraded called %d times, want once", reports.Load())
		}
		f.heal()
		time.Sleep(time.Minute)
		if reports.Load() != 2 {
			t.Errorf("Degraded called %d times, want 2", reports.Load())
		}
	})
}

// A client closed while it has no notifications is no longer degraded, for a gauge in the process.
func TestCloseEndsDegraded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		denied := errors.New("no permission")
		f.set(func(f *faulty) { f.watch = func(context.Context) error { return denied } })
		reports := make(chan error, 9)
		observe := dibs.Observe(dibs.Hooks{Degraded: func(_ context.Context, d dibs.Degraded) { reports <- d.Err }})
		deaf := dibs.New(f, observe)
		lock(t, deaf, "n")
		synctest.Wait()
		if len(reports) != 1 || !errors.Is(<-reports, denied) {
			t.Fatal("the client is not degraded")
		}
		if err := deaf.Close(); err != nil {
			t.Error(err)
		}
		if len(reports) != 1 || <-reports != nil {
			t.Error("Close did not call Degraded once with nil")
		}

		f.heal()
		connected := dibs.New(f, observe)
		lock(t, connected, "n")
		synctest.Wait()
		if err := connected.Close(); err != nil || len(reports) > 0 {
			t.Errorf("close: %v, and Degraded was called %d times without need", err, len(reports))
		}
	})
}

// A waiter misses a grant, the reply to its next request is lost, and it misses that request's
// grant as well. The next reply has the same ticket, so the late notification must not count.
func TestLateNotificationOfASecondMissedGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		var late []func()
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				switch e.Kind {
				case driver.EventGranted:
					late = append(late, func() { on(e) })
				case driver.EventRetry: // lost
				default:
					on(e)
				}
			}
		})
		holder, slow := open(t, good), open(t, f)
		l := lock(t, holder, "n")
		entered := make(chan *dibs.Lease, 1)
		go func() {
			l, err := slow.Mutex("n").Lock(t.Context())
			wantErr(t, err)
			entered <- l
		}()
		synctest.Wait()
		missGrant := func() {
			f.set(func(f *faulty) {
				f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
					return driver.AcquireReply{}, errReset
				}
			})
			wantErr(t, l.Unlock())
			time.Sleep(driver.WaiterTTL * 6 / 5)
			l = lock(t, holder, "n")
		}
		missGrant()
		queued := make(chan bool, 1)
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				_, err := f.Store.Acquire(ctx, r)
				select {
				case queued <- err == nil:
				default:
				}
				return driver.AcquireReply{}, errReset
			}
		})
		if !<-queued {
			t.Fatal("the request has failed")
		}
		missGrant()
		f.set(func(f *faulty) { f.acquire = nil })
		time.Sleep(driver.WaiterTTL / 2) // slow is answered "not granted"
		if len(late) != 2 {
			t.Fatalf("%d delayed grants, want 2", len(late))
		}
		late[1]()
		synctest.Wait()
		select {
		case second := <-entered:
			t.Fatalf("a second lease, with fence %d, while that with fence %d is held", second.Fence(), l.Fence())
		default:
		}
		f.heal()
		wantErr(t, l.Unlock())
		wantErr(t, (<-entered).Unlock())
	})
}

// A notification delayed for longer than its grant lived must not count as a new grant, even if the
// waiter was answered "not granted" in between.
func TestStaleNotification(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		var stale []func()
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				if e.Kind == driver.EventGranted {
					stale = append(stale, func() { on(e) })
					return
				}
				on(e)
			}
		})
		holder, slow, third := open(t, good), open(t, f, dibs.TTL(time.Second)), open(t, good)
		l := lock(t, holder, "n")
		entered := make(chan *dibs.Lease, 1)
		go func() {
			l, err := slow.Mutex("n").Lock(t.Context())
			wantErr(t, err)
			entered <- l
		}()
		synctest.Wait()
		// A request is lost while the grant lives. The next request arrives after the grant
		// expired, and the grant's notification even later.
		begin := time.Now()
		f.set(func(f *faulty) {
			f.acquire = func(_ context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				if lost := 1300*time.Millisecond - time.Since(begin); lost > 0 {
					time.Sleep(lost)
					return driver.AcquireReply{}, errReset
				}
				time.Sleep(300 * time.Millisecond)
				r.Until = time.Time{}
				return f.Store.Acquire(context.Background(), r)
			}
		})
		time.Sleep(400 * time.Millisecond)
		wantErr(t, l.Unlock()) // grants the name to slow, for a second
		time.Sleep(1050 * time.Millisecond)
		other := lock(t, third, "n")       // after that second
		time.Sleep(250 * time.Millisecond) // slow is answered "not granted"
		if len(stale) != 1 {
			t.Fatalf("%d delayed grants, want 1", len(stale))
		}
		stale[0]()
		synctest.Wait()
		select {
		case l := <-entered:
			t.Fatalf("two holders: %v, %v", l.Err(), other.Err())
		default:
		}
		f.heal()
		wantErr(t, other.Unlock())
		wantErr(t, (<-entered).Unlock())
	})
}

// An acquire's reply is lost: the second request finds the lock.
func TestAcquireReplyLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := open(t, f)
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				f.set(func(f *faulty) { f.acquire = nil })
				_, _ = f.Store.Acquire(ctx, r)
				return driver.AcquireReply{}, errReset
			}
		})
		begin := time.Now()
		l := lock(t, c, "n")
		if d := time.Since(begin); d > 5*time.Millisecond {
			t.Errorf("took %v", d)
		}
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
	})
}

// The store grants the lock and then hangs. The call ends with its context, and the name
// is free soon after the store answers again.
func TestAcquireWhileStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := open(t, f)
		lock(t, c, "warm")
		f.hangAll()
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				_, _ = f.Store.Acquire(ctx, r)
				return driver.AcquireReply{}, hang(ctx, r.Until)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := c.Mutex("n").Lock(ctx)
		wantErr(t, err, dibs.ErrUnavailable, context.DeadlineExceeded)
		if d := time.Since(begin); d > 300*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
		_, err = c.Mutex("m").Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		if d := time.Since(begin); d > 1300*time.Millisecond {
			t.Errorf("returned after %v, want the operation timeout of 1s", d-300*time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		f.heal()
		if d := waitUntilFree(t, s, "n") + waitUntilFree(t, s, "m"); d > 600*time.Millisecond {
			t.Errorf("free %v after the store is back", d)
		}
	})
}

// An unanswered request arrives after the caller left: the lock it acquires is released.
func TestAcquireDeliveredLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := open(t, f)
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				time.AfterFunc(300*time.Millisecond, func() { _, _ = f.Store.Acquire(context.Background(), r) })
				return driver.AcquireReply{}, hang(ctx, r.Until)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err := c.Mutex("n").Lock(ctx)
		wantErr(t, err, dibs.ErrUnavailable, context.Canceled)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if d := waitUntilFree(t, s, "n"); d > 600*time.Millisecond {
			t.Errorf("free %v after it arrived", d)
		}
	})
}

func TestReleaseReplyLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := open(t, f)
		l := lock(t, c, "n")
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				f.set(func(f *faulty) { f.release = nil })
				_, _ = f.Store.Release(ctx, r)
				return false, errReset
			}
		})
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
	})
}

func TestReleaseRequestLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := open(t, f)
		l := lock(t, c, "n")
		f.hangAll()
		begin := time.Now()
		err := l.Unlock()
		wantErr(t, err, dibs.ErrUnavailable)
		var u *dibs.UnavailableError
		if !errors.As(err, &u) || !u.Unknown {
			t.Errorf("%v does not report an unknown outcome", err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("unlock took %v", d)
		}
		time.Sleep(5 * time.Second)
		f.heal()
		if d := waitUntilFree(t, s, "n"); d > 600*time.Millisecond {
			t.Errorf("free %v after the store is back", d)
		}
		wantErr(t, l.Unlock())
	})
}

// A queued waiter survives an outage.
func TestWaiterSurvivesOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		holder, c := open(t, good), open(t, f)
		l := lock(t, holder, "n")
		time.AfterFunc(time.Second, f.hangAll)
		time.AfterFunc(20*time.Second, f.heal)
		time.AfterFunc(30*time.Second, func() { _ = l.Unlock() })
		begin := time.Now()
		lock(t, c, "n")
		if d := time.Since(begin); d > 30*time.Second+10*time.Millisecond {
			t.Errorf("entered after %v, freed after 30s", d)
		}
	})
}

// A store that answers a queued waiter with errors counts as an outage, however long it lasts.
func TestWaiterSurvivesRejections(t *testing.T) {
	waits := map[string]func(ctx context.Context, c *dibs.Client) (*dibs.Lease, error){
		"mutex": func(ctx context.Context, c *dibs.Client) (*dibs.Lease, error) { return c.Mutex("n").Lock(ctx) },
		"reader": func(ctx context.Context, c *dibs.Client) (*dibs.Lease, error) {
			return c.RWMutex("n").Reader().Lock(ctx)
		},
		"names": func(ctx context.Context, c *dibs.Client) (*dibs.Lease, error) {
			return c.All([]string{"m", "n"}).Lock(ctx)
		},
	}
	for kind, wait := range waits {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				holder, c := open(t, good), open(t, f)
				l := lock(t, holder, "n")
				time.AfterFunc(time.Second, func() { rejectAll(f, errors.New("OOM command not allowed")) })
				time.AfterFunc(5*time.Minute, f.heal)
				time.AfterFunc(6*time.Minute, func() { _ = l.Unlock() })
				begin := time.Now()
				got, err := wait(t.Context(), c)
				wantErr(t, err)
				wantWithin(t, time.Since(begin), 6*time.Minute, 6*time.Minute+time.Second)
				wantErr(t, got.Unlock())
			})
		})
	}
}

// Once the program closed its connections no request can succeed, so waits end at once.
func TestClosedConnectionsEndWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		holder, c := open(t, good), open(t, f)
		lock(t, holder, "n")
		time.AfterFunc(time.Second, func() { rejectAll(f, fmt.Errorf("%w: closed pool", driver.ErrDisconnected)) })
		begin := time.Now()
		_, err := c.Mutex("n").Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable, driver.ErrDisconnected)
		wantWithin(t, time.Since(begin), time.Second, time.Second+driver.WaiterTTL/2)
	})
}

// rejectAll makes the store answer each acquire with an error.
func rejectAll(f *faulty, why error) {
	f.set(func(f *faulty) {
		f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
			return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Name: "n", Cause: why, Refused: true}
		}
	})
}

func TestRejectionIsReturnedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		why := errors.New("READONLY")
		f.set(func(f *faulty) {
			f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, &driver.UnavailableError{Op: "acquire", Name: "n", Cause: why, Refused: true}
			}
		})
		c := open(t, f)
		begin := time.Now()
		_, err := c.Mutex("n").Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable, why)
		if d := time.Since(begin); d != 0 {
			t.Errorf("returned after %v", d)
		}
	})
}

func TestReentrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, rival := open(t, s), open(t, s)
		m := c.Mutex("n")
		err := m.Do(t.Context(), func(ctx context.Context) error {
			_, err := m.Lock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			_, err = c.Mutex("n").TryLock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			wantErr(t, c.Mutex("other").Do(ctx, func(ctx context.Context) error {
				_, err := m.Lock(ctx)
				wantErr(t, err, dibs.ErrReentrant)
				return nil
			}))
			inner, err := m.Lock(ctx, dibs.Reentrant())
			wantErr(t, err)
			if inner.Fence() != fenceIn(t, ctx) {
				t.Errorf("fence %d inside, %d outside", inner.Fence(), fenceIn(t, ctx))
			}
			wantErr(t, inner.Unlock())
			_, err = rival.Mutex("n").TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			return nil
		})
		wantErr(t, err)
		wantFree(t, s, "n")
		l := lock(t, c, "n")
		ctx := l.Context()
		wantErr(t, l.Unlock())
		again, err := m.Lock(ctx) // the context's lease is over, and so is the context
		if err == nil || again != nil {
			t.Errorf("locked with an ended context: %v", err)
		}
		again, err = m.Lock(context.WithoutCancel(ctx))
		wantErr(t, err)
		wantErr(t, again.Unlock())
	})
}

func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s, dibs.TTL(time.Second))
		m := c.Mutex("n")

		failed := errors.New("failed")
		wantErr(t, m.Do(t.Context(), func(context.Context) error { return failed }), failed)
		wantFree(t, s, "n")

		func() {
			defer func() { _ = recover() }()
			_ = m.Do(t.Context(), func(context.Context) error { panic("work") })
		}()
		wantFree(t, s, "n")

		// The cancellation ends the work; the end of the work releases the lock.
		ctx, cancel := context.WithCancel(t.Context())
		err := m.Do(ctx, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			time.Sleep(time.Minute)
			if _, err := c.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("free while the work runs: %v", err)
			}
			return ctx.Err()
		})
		wantErr(t, err, context.Canceled)
		wantFree(t, s, "n")

		err = m.Do(t.Context(), func(ctx context.Context) error {
			state, _ := s.Inspect(t.Context(), "n")
			_, _ = s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: state.Holders[0].Token})
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantErr(t, err, dibs.ErrLost)

		n, err := dibs.Call(t.Context(), m, func(ctx context.Context) (int, error) { return 42, nil })
		if n != 42 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := dibs.New(s)
		held := lock(t, c, "held")
		other := open(t, s)
		lock(t, other, "taken")
		waiting := make(chan error)
		go func() {
			_, err := c.Mutex("taken").Lock(t.Context())
			waiting <- err
		}()
		synctest.Wait()
		wantErr(t, c.Close())
		wantErr(t, <-waiting, dibs.ErrClosed)
		wantErr(t, c.Close())
		wantFree(t, s, "held")
		wantLost(t, held.Err(), dibs.ReasonClosed)
		wantLost(t, held.Unlock(), dibs.ReasonClosed)
		_, err := c.Mutex("held").Lock(t.Context())
		wantErr(t, err, dibs.ErrClosed)
		if state, _ := s.Inspect(t.Context(), "taken"); state.Waiting != 0 {
			t.Error("queue entry left")
		}
	})
}

// A closed client leaves nothing running, even if its store hangs.
func TestCloseWhileStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := dibs.New(f)
		lock(t, c, "n")
		f.hangAll()
		begin := time.Now()
		wantErr(t, c.Close(), dibs.ErrUnavailable)
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("close took %v", d)
		}
	}) // the bubble fails if a goroutine is left
}

func TestLocker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		var n int
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				l := c.Mutex("n").Locker(t.Context())
				l.Lock()
				defer l.Unlock()
				n++
			})
		}
		group.Wait()
		if n != 10 {
			t.Errorf("%d", n)
		}
		defer func() {
			if recover() == nil {
				t.Error("unlock of an unlocked Locker did not panic")
			}
		}()
		c.Mutex("n").Locker(t.Context()).Unlock()
	})
}

func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var got []string
		var mu sync.Mutex
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, what)
		}
		c := open(t, s, dibs.Observe(dibs.Hooks{
			Queued: func(_ context.Context, w dibs.Queued) { note("waiting") },
			AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) {
				note(map[bool]string{true: "pushed", false: "acquired"}[a.Notified])
			},
			Renewed:  func(context.Context, dibs.Renewed) { note("renewed") },
			Released: func(context.Context, dibs.Released) { note("released") },
		}))
		l := lock(t, c, "n", dibs.TTL(3*time.Second))
		time.Sleep(1500 * time.Millisecond)
		done := make(chan struct{})
		go func() {
			defer close(done)
			wantErr(t, lock(t, c, "n").Unlock())
		}()
		synctest.Wait()
		wantErr(t, l.Unlock())
		<-done
		synctest.Wait()
		want := map[string]int{"acquired": 1, "renewed": 1, "waiting": 1, "pushed": 1, "released": 2}
		have := make(map[string]int)
		for _, what := range got {
			have[what]++
		}
		for what, n := range want {
			if have[what] != n {
				t.Errorf("hooks %v, want %d × %s", got, n, what)
			}
		}
	})
}

func TestListAndInspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		lock(t, c, "b", dibs.Label("backup"))
		lock(t, c, "a/x")
		states, err := listed(c, "*")
		if err != nil || len(states) != 2 || states[0].Name != "a/x" || states[1].Holders[0].Label != "backup" {
			t.Errorf("%+v, %v", states, err)
		}
		_, err = c.Inspect(t.Context(), "")
		wantErr(t, err, dibs.ErrInvalid)
	})
}

// withoutEvents returns a client without events, and a counter for its requests.
func withoutEvents(t *testing.T, f *faulty) *dibs.Client {
	t.Helper()
	f.set(func(f *faulty) { f.watch = func(context.Context) error { return errors.New("no permission") } })
	return open(t, f)
}

func (f *faulty) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acquires
}

// Clients without notifications get the lock quickly after a release, at a low cost for
// the store.
func TestPollingIsQuick(t *testing.T) {
	for _, holds := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		for _, clients := range []int{2, 6, 50} {
			t.Run(fmt.Sprint(clients, " hold for ", holds), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					const span = 20 * time.Second
					f, _ := newFaulty()
					ctx, cancel := context.WithTimeout(t.Context(), span)
					defer cancel()
					var entries atomic.Int64
					var group sync.WaitGroup
					for range clients {
						c := withoutEvents(t, f)
						group.Go(func() {
							for ctx.Err() == nil {
								l, err := c.Mutex("n").Lock(ctx)
								if err != nil {
									return
								}
								entries.Add(1)
								time.Sleep(holds)
								wantErr(t, l.Unlock())
							}
						})
					}
					group.Wait()
					rate, each := float64(entries.Load())/span.Seconds(), float64(f.requests())/float64(entries.Load())
					least := 0.35 / (pollSoon + holds).Seconds()
					t.Logf("FIGURE %d clients, held for %v: %.0f entries/s, want %.0f; %.1f requests each", clients, holds, rate, least, each)
					if rate < least {
						t.Errorf("%.0f entries/s, want %.0f", rate, least)
					}
					if each > 25 {
						t.Errorf("%.1f requests for each entry", each)
					}
				})
			})
		}
	}
}

const pollSoon = 10 * time.Millisecond

// However long the queue has not moved, and however many waiters poll, each notices its turn within
// 100 ms. A queue that does not move causes few requests.
func TestPollingAfterALongWait(t *testing.T) {
	for _, waiters := range []int{1, 4, 20, 100} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const hold = 10 * time.Millisecond
				f, good := newFaulty()
				l := lock(t, open(t, good), "n")
				var free time.Time // when it is released
				var worst time.Duration
				var group sync.WaitGroup
				for range waiters {
					c := withoutEvents(t, f)
					group.Go(func() {
						l := lock(t, c, "n")
						worst = max(worst, time.Since(free))
						time.Sleep(hold)
						free = time.Now()
						wantErr(t, l.Unlock())
					})
				}
				synctest.Wait()
				time.Sleep(10 * time.Second)
				before := f.requests()
				const span = 10 * time.Second
				time.Sleep(span)
				perSecond := float64(f.requests()-before) / span.Seconds()
				free = time.Now()
				wantErr(t, l.Unlock())
				group.Wait()
				t.Logf("FIGURE %d polling waiters: %.0f requests/s while the queue does not move, a hand-off in %v at most", waiters, perSecond, worst)
				if worst > 105*time.Millisecond {
					t.Errorf("a hand-off took %v, want 100ms", worst)
				}
				if most := float64(11 * waiters); perSecond > min(most, 280) {
					t.Errorf("%.0f requests/s of %d waiters", perSecond, waiters)
				}
			})
		})
	}
}

// A new client queues only when it can be notified: a release passes over queue entries from
// clients without a subscription.
func TestNewClientQueuesWhenItIsSubscribed(t *testing.T) {
	for what, c := range map[string]struct {
		subscribed time.Duration // after the client's start
		fails      bool          // the subscription
		queued     time.Duration // after the call
	}{
		"subscribed at once":     {0, false, 0},
		"subscribed later":       {300 * time.Millisecond, false, 300 * time.Millisecond},
		"subscribed too late":    {4 * time.Second, false, time.Second / 2},
		"no notifications":       {0, true, 0},
		"no notifications later": {200 * time.Millisecond, true, 200 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, s := newFaulty()
				mutex(t, s, "n")
				f.set(func(f *faulty) {
					f.event = func(e driver.Event, on func(driver.Event)) {
						time.Sleep(c.subscribed)
						on(e)
					}
					if c.fails {
						f.watch = func(context.Context) error {
							time.Sleep(c.subscribed)
							return errReset
						}
					}
				})
				begin := time.Now()
				var queued time.Duration
				client := open(t, f, dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { queued = time.Since(begin) }}))
				_, err := client.Mutex("n").Lock(t.Context(), dibs.Wait(5*time.Second))
				if !errors.Is(err, dibs.ErrBusy) || time.Since(begin) != 5*time.Second {
					t.Errorf("%v after %v, want ErrBusy after 5s", err, time.Since(begin))
				}
				if d := queued - c.queued; d < 0 || d > 20*time.Millisecond {
					t.Errorf("queued after %v, want %v", queued, c.queued)
				}
			})
		})
	}
}

// A process's waiters far back in the queue send their heartbeats together, so that the store
// serves many in a call. None should be late. Waiters in front send theirs when due.
func TestHeartbeatsTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waiters, inFront = 400, 64
		store, reliable := newFaulty()
		var mu sync.Mutex
		sent := make(map[string][]time.Time)
		store.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				mu.Lock()
				sent[r.Token] = append(sent[r.Token], time.Now())
				mu.Unlock()
				return reliable.Acquire(ctx, r)
			}
		})
		lock(t, open(t, reliable), "n")
		c := open(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		var pending sync.WaitGroup
		for i := range waiters {
			pending.Go(func() {
				_, err := c.Mutex("n").Lock(ctx, dibs.Label(fmt.Sprint(i)))
				wantErr(t, err, dibs.ErrBusy)
			})
			time.Sleep(7 * time.Millisecond)
		}
		begin := time.Now()
		time.Sleep(25 * time.Second)
		cancel()
		pending.Wait()
		near, far := make(map[time.Time]bool), make(map[time.Time]bool)
		for token, times := range sent {
			_, label, _ := strings.Cut(token[strings.LastIndex(token, "-"):], ":")
			i, err := strconv.Atoi(label)
			if err != nil {
				t.Fatal(token)
			}
			for n, at := range times {
				if n > 0 && at.Sub(times[n-1]) > driver.WaiterTTL/2 {
					t.Errorf("waiter %d: no heartbeat for %v", i, at.Sub(times[n-1]))
				}
				if at.Before(begin) {
					continue
				}
				if i < inFront {
					near[at] = true
				} else {
					far[at] = true
				}
			}
		}
		if len(far) > 25*20+1 { // a multiple of 50 ms
			t.Errorf("waiters far back sent their heartbeats at %d times", len(far))
		}
		if len(near) < inFront*9 {
			t.Errorf("waiters in front sent their heartbeats at %d times only", len(near))
		}
	})
}

// Waiters on a store without notifications do not poll all at once each time the watch is retried.
func TestPollingGoesOnWhenTheWatchFailsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waiters, tick = 500, 10 * time.Millisecond
		f, s := newFaulty()
		holder, c := open(t, s), open(t, f)
		held := lock(t, holder, "n")
		begin, polls := time.Now(), make(map[time.Duration]int)
		f.set(func(f *faulty) {
			f.watch = func(context.Context) error { return errors.New("no notifications") }
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				f.mu.Lock()
				polls[time.Since(begin).Truncate(tick)]++
				f.mu.Unlock()
				return s.Acquire(ctx, r)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var pending sync.WaitGroup
		for range waiters {
			pending.Go(func() {
				_, err := c.Mutex("n").Lock(ctx)
				wantErr(t, err, dibs.ErrBusy)
			})
		}
		time.Sleep(25 * time.Second)
		cancel()
		pending.Wait()
		wantErr(t, held.Unlock())
		for at, n := range polls {
			if at > 5*time.Second && n > waiters/4 {
				t.Errorf("%d polls within %v, %v after the beginning", n, tick, at)
			}
		}
	})
}
