package dibs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// A job that yields between its parts lets waiters in, and holds the lock in each part.
func TestYield(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		job, web := open(t, s), open(t, s)
		var order []string
		done := make(chan struct{})
		wantErr(t, job.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			var fences []uint64
			for part := range 4 {
				if part == 1 {
					go func() {
						defer close(done)
						wantErr(t, web.Mutex("n").Do(context.Background(), func(context.Context) error {
							order = append(order, "web")
							time.Sleep(time.Second)
							return nil
						}))
					}()
				}
				wantErr(t, job.Holds(ctx, "n"))
				fences = append(fences, fenceIn(t, ctx))
				order = append(order, "part")
				time.Sleep(time.Second)
				wantErr(t, carried.Yield(ctx, "n"))
			}
			if fences[0] != fences[1] || fences[1] >= fences[2] || fences[2] != fences[3] {
				t.Errorf("fences %d, want a larger one after the second part only", fences)
			}
			return ctx.Err()
		}))
		<-done
		if want := []string{"part", "part", "web", "part", "part"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if _, err := web.Mutex("n").TryLock(t.Context()); err != nil {
			t.Errorf("after Do: %v, want the lock to be free", err)
		}
	})
}

// The context ends with its current lease, and not with an earlier lease.
func TestYieldKeepsTheContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			leave := queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })
			defer leave()
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			wantErr(t, carried.Yield(inner, "n")) // a context derived from Do's
			wantErr(t, ctx.Err())
			state, err := other.Inspect(t.Context(), "n")
			wantErr(t, err)
			revoked, err := other.Revoke(t.Context(), "n", dibs.Holder{Fence: state.Holders[0].Fence}, "test")
			if !revoked {
				t.Errorf("revoke: %v", err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantErr(t, err, dibs.ErrLost)
	})
}

// Yield returns an error, and the context ends, if the lock is not held again.
func TestYieldFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		hold := func(t *testing.T) { // takes the lock as soon as it is free, and keeps it
			go func() {
				l, err := other.Mutex("n").Lock(t.Context())
				if err == nil {
					time.Sleep(time.Hour)
					wantErr(t, l.Unlock())
				}
			}()
			synctest.Wait()
		}
		stopped := errors.New("stopped")
		for name, yield := range map[string]func(ctx context.Context) error{
			"limit": func(ctx context.Context) error { return carried.Yield(ctx, "n", dibs.Wait(time.Second)) },
			"tries": func(ctx context.Context) error { return carried.Yield(ctx, "n", dibs.Attempts(2, time.Second)) },
			"context": func(ctx context.Context) error {
				ctx, stop := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { stop(stopped) })
				return carried.Yield(ctx, "n")
			},
		} {
			begin := time.Now()
			err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
				hold(t)
				err := yield(ctx)
				if !errors.Is(err, dibs.ErrBusy) || !errors.Is(context.Cause(ctx), dibs.ErrBusy) {
					t.Errorf("%s: error %v, cause %v of the context, want ErrBusy", name, err, context.Cause(ctx))
				}
				if name == "context" && !errors.Is(err, stopped) {
					t.Errorf("error %v, want the cause of the context", err)
				}
				wantErr(t, c.Holds(ctx, "n"), dibs.ErrReleased)
				wantErr(t, carried.Yield(ctx, "n"), dibs.ErrReleased)
				return nil // Do returns the error nevertheless
			})
			wantErr(t, err, dibs.ErrBusy)
			if took := time.Since(begin); took != time.Second {
				t.Errorf("%s: %v, want 1s", name, took)
			}
			time.Sleep(2 * time.Hour)
		}
		state, err := c.Inspect(t.Context(), "n")
		if err != nil || state.Holding+state.Waiting > 0 {
			t.Errorf("left behind: %+v, %v", state, err)
		}
	})
}

// A lost lease's Yield reports the loss.
func TestYieldOfLostLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			return carried.Yield(ctx, "n")
		}, dibs.MaxHold(time.Second))
		wantErr(t, err, dibs.ErrLost)
	})
}

func TestYieldIsInvalid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		refused := func(err error, why string) {
			if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), why) {
				t.Errorf("error %v, want ErrInvalid with %s", err, why)
			}
		}
		l := lock(t, c, "lease")
		refused(l.Yield(t.Context()), "Unlock, and Lock again")
		refused(carried.Yield(l.Context(), "lease"), "Unlock, and Lock again")
		refused(c.Once("once", time.Hour).Do(t.Context(), func(ctx context.Context) error { return carried.Yield(ctx, "once") }), "Once would keep")
		refused(c.Election("term").Run(t.Context(), func(ctx context.Context) error { return carried.Yield(ctx, "term") }), "Resign")
		wantErr(t, l.Err())

		// A nested call relies on the lease.
		mutex := c.Mutex("n", dibs.Reentrant())
		wantErr(t, mutex.Do(t.Context(), func(ctx context.Context) error {
			defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
			wantErr(t, mutex.Do(ctx, func(nested context.Context) error { return carried.Yield(nested, "n") }), dibs.ErrReentrant)
			return c.Holds(ctx, "n")
		}))
	})
}

// Two goroutines yielding at the same time do not acquire the lock twice.
func TestConcurrentYields(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			go func() {
				l := lock(t, other, "n")
				time.Sleep(time.Second)
				wantErr(t, l.Unlock())
			}()
			synctest.Wait()
			first := make(chan error)
			go func() { first <- carried.Yield(ctx, "n") }()
			synctest.Wait()
			wantErr(t, carried.Yield(ctx, "n"), dibs.ErrInvalid)
			return <-first
		}))
		state, err := c.Inspect(t.Context(), "n")
		if err != nil || state.Holding+state.Waiting > 0 {
			t.Errorf("left behind: %+v, %v", state, err)
		}
	})
}

// Each primitive yields with its own request.
func TestYieldByKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		for name, lock := range map[string]dibs.Doer{
			"mutex": c.Mutex("a"), "writer": c.RWMutex("a").Writer(), "reader": c.RWMutex("a").Reader(),
			"permit": c.Semaphore("a", 3).Permits(1), "multi": c.All([]string{"a", "b"}),
		} {
			wantErr(t, lock.Do(t.Context(), func(ctx context.Context) error {
				lease, err := dibs.LeaseOf(ctx, "a")
				wantErr(t, err)
				before := lease.FenceOf("a")
				granted := make(chan struct{})
				go func() {
					l, err := other.All([]string{"a", "c"}).Lock(t.Context())
					wantErr(t, err)
					close(granted)
					time.Sleep(time.Second)
					wantErr(t, l.Unlock())
				}()
				synctest.Wait()
				wantErr(t, lease.Yield(ctx))
				<-granted
				if after := lease.FenceOf("a"); after <= before {
					t.Errorf("%s: fence %d after %d", name, after, before)
				}
				return nil
			}))
		}
	})
}

// A goroutine that outlives Do's function holds nothing after its Yield, whenever the function
// returns.
func TestYieldAfterTheWork(t *testing.T) {
	const slow = 10 * time.Millisecond // for each request
	for what, yieldContext := range map[string]func(context.Context) context.Context{
		"the context of Do": func(ctx context.Context) context.Context { return ctx },
		"a context without its end": func(ctx context.Context) context.Context {
			return context.WithoutCancel(ctx)
		},
	} {
		for returnsAfter := time.Duration(0); returnsAfter < 12*slow; returnsAfter += slow / 4 {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				c, other := open(t, f), open(t, good)
				f.set(func(f *faulty) {
					f.acquire = func(ctx context.Context, request driver.AcquireRequest) (driver.AcquireReply, error) {
						time.Sleep(slow)
						defer time.Sleep(slow)
						return f.Store.Acquire(context.WithoutCancel(ctx), request)
					}
					f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
						time.Sleep(slow)
						return f.Store.Release(ctx, r)
					}
				})
				yielded := make(chan error, 1)
				wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
					go func() {
						l := lock(t, other, "n")
						time.Sleep(3 * slow)
						wantErr(t, l.Unlock())
					}()
					synctest.Wait()
					go func() { yielded <- carried.Yield(yieldContext(ctx), "n") }()
					time.Sleep(returnsAfter)
					return nil
				}))
				synctest.Wait()
				early := len(yielded) == 1
				if err := <-yielded; !early || err != nil {
					wantErr(t, err, dibs.ErrReleased)
				}
				wantNothing(t, good, "n")
				if t.Failed() {
					t.Errorf("%s, the function returned after %v", what, returnsAfter)
				}
			})
		}
	}
}

// After the work, Yield sends nothing.
func TestYieldOfEndedWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		var of context.Context
		wantErr(t, open(t, f).Mutex("n").Do(t.Context(), func(ctx context.Context) error { of = ctx; return nil }))
		before := f.acquires
		for _, ctx := range []context.Context{of, context.WithoutCancel(of)} {
			wantErr(t, carried.Yield(ctx, "n"), dibs.ErrReleased)
		}
		if f.acquires != before || f.notifies > 0 {
			t.Errorf("%d acquires, %d questions, want none", f.acquires-before, f.notifies)
		}
		wantNothing(t, good, "n")
	})
}

// An option rejected by Yield costs nothing: the work still holds the lock.
func TestYieldChecksOptionsFirst(t *testing.T) {
	for what, options := range map[string][]dibs.Option{
		"TTL":               {dibs.TTL(time.Millisecond)},
		"Wait":              {dibs.Wait(-1)},
		"Attempts":          {dibs.Attempts(0, time.Second)},
		"Attempts and Wait": {dibs.Attempts(3, time.Second), dibs.Wait(time.Second)},
		"Label":             {dibs.Label("a b")},
	} {
		for _, waits := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				c, other := open(t, s), open(t, s)
				wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
					if waits {
						defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
					}
					if err := carried.Yield(ctx, "n", options...); !errors.Is(err, dibs.ErrInvalid) {
						t.Errorf("%s: error %v, want ErrInvalid", what, err)
					}
					wantErr(t, ctx.Err())
					wantErr(t, c.Holds(ctx, "n"))
					return carried.Yield(ctx, "n")
				}))
			})
		}
	}
}

// Yield's options are a level below Do's.
func TestYieldOverridesOptionsOfDo(t *testing.T) {
	for what, test := range map[string]struct {
		outer, do, yield []dibs.Option
		want             time.Duration // until Yield gives up; the other request holds the lock for 1 m
	}{
		"Wait for Attempts":     {nil, []dibs.Option{dibs.Attempts(3, time.Second)}, []dibs.Option{dibs.Wait(7 * time.Second)}, 7 * time.Second},
		"Attempts for Wait":     {nil, []dibs.Option{dibs.Wait(time.Second)}, []dibs.Option{dibs.Attempts(4, time.Second)}, 3 * time.Second},
		"Wait for Wait":         {nil, []dibs.Option{dibs.Wait(time.Second)}, []dibs.Option{dibs.Wait(9 * time.Second)}, 9 * time.Second},
		"of Do":                 {nil, []dibs.Option{dibs.Wait(5 * time.Second)}, nil, 5 * time.Second},
		"of the lock":           {[]dibs.Option{dibs.Attempts(2, 4*time.Second)}, nil, []dibs.Option{dibs.TTL(time.Minute)}, 4 * time.Second},
		"Wait for the lock's":   {[]dibs.Option{dibs.Attempts(2, 4*time.Second)}, nil, []dibs.Option{dibs.Wait(time.Second)}, time.Second},
		"Wait for both of them": {[]dibs.Option{dibs.Wait(time.Second)}, []dibs.Option{dibs.Attempts(9, time.Second)}, []dibs.Option{dibs.Wait(2 * time.Second)}, 2 * time.Second},
	} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			c, other := open(t, s), open(t, s)
			err := c.Mutex("n", test.outer...).Do(t.Context(), func(ctx context.Context) error {
				go func() {
					l := lock(t, other, "n")
					time.Sleep(time.Minute)
					wantErr(t, l.Unlock())
				}()
				synctest.Wait()
				begin := time.Now()
				err := carried.Yield(ctx, "n", test.yield...)
				if took := time.Since(begin); took != test.want {
					t.Errorf("%s: gave up after %v, want %v", what, took, test.want)
				}
				return err
			}, test.do...)
			wantErr(t, err, dibs.ErrBusy)
			time.Sleep(2 * time.Minute)
		})
	}
}

// Yield of a lease with MinHold is refused: the name would be free for nobody.
func TestYieldRefusesMinHold(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		s := memstore.New()
		c, other := open(t, wrap(s)), open(t, s)
		for what, doer := range map[string]dibs.Doer{
			"mutex": c.Mutex("n"), "lock": c.Mutex("n", dibs.MinHold(time.Minute)), "several": c.All([]string{"m", "n"}), "reader": c.RWMutex("n").Reader(),
		} {
			wantErr(t, doer.Do(t.Context(), func(ctx context.Context) error {
				defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
				for range 2 {
					if err := carried.Yield(ctx, "n"); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "MinHold") {
						t.Errorf("%s: error %v, want ErrInvalid that names MinHold", what, err)
					}
					wantErr(t, ctx.Err())
					wantErr(t, c.Holds(ctx, "n"))
					time.Sleep(time.Hour) // also after MinHold passed
				}
				return nil
			}, dibs.MinHold(time.Minute)))
		}
	})
}
