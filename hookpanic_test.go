package dibs_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
)

// A trap is a hook that does not return, once.
type trap struct {
	armed atomic.Bool
	spent atomic.Int32
	exit  bool // it calls runtime.Goexit; otherwise it panics
}

func (h *trap) spring() {
	if !h.armed.CompareAndSwap(true, false) {
		return
	}
	h.spent.Add(1)
	if h.exit {
		runtime.Goexit()
	}
	panic(h)
}

// hooks returns hooks for a kind of event, which spring the trap.
func (h *trap) hooks(kind string) (hooks dibs.Hooks) {
	switch kind {
	case "AcquireStart":
		hooks.AcquireStart = func(ctx context.Context, _ dibs.AcquireStart) context.Context { h.spring(); return ctx }
	case "Queued":
		hooks.Queued = func(context.Context, dibs.Queued) { h.spring() }
	case "AcquireEnd":
		hooks.AcquireEnd = func(context.Context, dibs.AcquireEnd) { h.spring() }
	case "RenewFailed":
		hooks.RenewFailed = func(context.Context, dibs.RenewFailed) { h.spring() }
	case "Lost":
		hooks.Lost = func(context.Context, dibs.Lost) { h.spring() }
	case "Released":
		hooks.Released = func(context.Context, dibs.Released) { h.spring() }
	case "TermFailed":
		hooks.TermFailed = func(context.Context, dibs.TermFailed) { h.spring() }
	case "Renewed":
		hooks.Renewed = func(context.Context, dibs.Renewed) { h.spring() }
	case "Degraded":
		hooks.Degraded = func(context.Context, dibs.Degraded) { h.spring() }
	}
	return hooks
}

// call runs f in a goroutine, and returns f's panic value, or nil.
func (h *trap) call(f func()) (panicked any) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		f()
	}()
	<-done
	return panicked
}

// holdings are ways to hold the name n for a moment, which may be wanted by others.
var holdings = map[string]func(ctx context.Context, c *dibs.Client){
	"Lock":    func(ctx context.Context, c *dibs.Client) { release(c.Mutex("n").Lock(ctx)) },
	"TryLock": func(ctx context.Context, c *dibs.Client) { release(c.Mutex("n").TryLock(ctx)) },
	"Do":      func(ctx context.Context, c *dibs.Client) { _ = c.Mutex("n").Do(ctx, ended) },
	"Call": func(ctx context.Context, c *dibs.Client) {
		_, _ = dibs.Call(ctx, c.Mutex("n"), func(ctx context.Context) (int, error) { return 1, ended(ctx) })
	},
	"Locker": func(ctx context.Context, c *dibs.Client) {
		l := c.Mutex("n").Locker(ctx)
		l.Lock()
		l.Unlock() //nolint:staticcheck // only the calls matter
	},
	"writer":          func(ctx context.Context, c *dibs.Client) { _ = c.RWMutex("n").Writer().Do(ctx, ended) },
	"reader":          func(ctx context.Context, c *dibs.Client) { _ = c.RWMutex("n").Reader().Do(ctx, ended) },
	"permits":         func(ctx context.Context, c *dibs.Client) { release(c.Semaphore("n", 3).Permits(2).Lock(ctx)) },
	"several":         func(ctx context.Context, c *dibs.Client) { release(c.All([]string{"m", "n"}).Lock(ctx)) },
	"try several":     func(ctx context.Context, c *dibs.Client) { release(c.All([]string{"m", "n"}).TryLock(ctx)) },
	"Do with several": func(ctx context.Context, c *dibs.Client) { _ = c.All([]string{"m", "n"}).Do(ctx, ended) },
	"Once":            func(ctx context.Context, c *dibs.Client) { _ = c.Once("n", time.Second).Do(ctx, ended) },
	"Campaign":        func(ctx context.Context, c *dibs.Client) { release(c.Election("n").Campaign(ctx)) },
	"Run":             func(ctx context.Context, c *dibs.Client) { _ = c.Election("n").Run(ctx, ended) },
}

func release(l *dibs.Lease, err error) {
	if err == nil {
		_ = l.Unlock()
	}
}

func ended(ctx context.Context) error { return ctx.Err() }

// A hook that panics or ends its goroutine leaves no lease behind, whichever primitive calls it.
// The panic reaches the caller, and its client continues to work.
func TestHookThatDoesNotReturnLeavesNothing(t *testing.T) {
	for _, kind := range []string{"AcquireStart", "AcquireEnd", "Released"} {
		for what, locks := range holdings {
			for _, exit := range []bool{false, true} {
				t.Run(fmt.Sprint(kind, " of ", what, " exits ", exit), func(t *testing.T) {
					bothModes(t, func(t *testing.T, wrap storeWrapper) {
						f, good := newFaulty()
						h := &trap{exit: exit}
						c := open(t, wrap(f), dibs.Observe(h.hooks(kind)))
						h.armed.Store(true)
						panicked := h.call(func() { locks(t.Context(), c) })
						if h.spent.Load() != 1 {
							t.Fatalf("the hook was called %d times: the test proves nothing", h.spent.Load())
						}
						if (panicked == any(h)) == exit {
							t.Errorf("the caller got %v", panicked)
						}
						wantNothing(t, good, "m", "n")
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if failed := h.call(func() { locks(ctx, c) }); failed != nil {
							t.Errorf("the next call: %v", failed)
						}
						wantNothing(t, good, "m", "n")
					})
				})
			}
		}
	}
}

// The hooks for a lease that no caller received still report its end, in order.
func TestAbandonedLeaseIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, good := newFaulty()
		var j journal
		h := &trap{}
		c := open(t, good, dibs.Observe(j.all()), dibs.Observe(h.hooks("AcquireEnd")))
		h.armed.Store(true)
		h.call(func() { _, _ = c.Mutex("n").Lock(t.Context()) })
		want := "start mutex(n 1/1) try=false end mutex(n 1/1) held waited=0s queued=false notified=false released mutex(n 1/1) held=0s <nil>"
		if have := j.String(); have != want {
			t.Errorf("events %q, want %q", have, want)
		}
	})
}

// A hook that does not return in a Yield ends the work's context: it holds nothing.
func TestHookThatDoesNotReturnInYield(t *testing.T) {
	for _, kind := range []string{"AcquireStart", "AcquireEnd", "Released"} {
		for _, exit := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " exits ", exit), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f, good := newFaulty()
					h := &trap{exit: exit}
					c, other := open(t, f, dibs.Observe(h.hooks(kind))), open(t, good)
					err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
						defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
						h.armed.Store(true)
						panicked := h.call(func() { _ = carried.Yield(ctx, "n") })
						if h.spent.Load() != 1 || (panicked == any(h)) == exit {
							t.Errorf("the hook was called %d times, the caller got %v", h.spent.Load(), panicked)
						}
						wantErr(t, c.Holds(ctx, "n"), dibs.ErrReleased)
						wantErr(t, context.Cause(ctx), dibs.ErrReleased)
						wantErr(t, carried.Yield(ctx, "n"), dibs.ErrReleased)
						wantNothing(t, good, "n")
						return nil
					})
					wantErr(t, err, dibs.ErrReleased)
					wantNothing(t, good, "n")
				})
			})
		}
	}
}

// A hook that ends its goroutine in the client delays neither calls, renewals nor other hooks. (If
// it panics, the program ends, as for each goroutine.)
func TestBackgroundHookThatExits(t *testing.T) {
	for kind, cause := range map[string]func(t *testing.T, c *dibs.Client, f *faulty){
		"Queued": func(t *testing.T, c *dibs.Client, f *faulty) {
			holder := mutex(t, f.Store, "n")
			time.AfterFunc(time.Second, func() { unlock(t, holder) })
			release(c.Mutex("n").Lock(t.Context()))
		},
		"Lost": func(t *testing.T, c *dibs.Client, _ *faulty) {
			l := lock(t, c, "n", dibs.MaxHold(time.Second))
			time.Sleep(2 * time.Second)
			wantLost(t, l.Unlock(), dibs.ReasonMaxHold)
		},
		"RenewFailed": func(t *testing.T, c *dibs.Client, f *faulty) {
			l := lock(t, c, "n", dibs.TTL(3*time.Second))
			f.failExtends()
			time.Sleep(2 * time.Second)
			f.heal()
			wantErr(t, l.Unlock())
		},
		"Renewed": func(t *testing.T, c *dibs.Client, _ *faulty) {
			l := lock(t, c, "n", dibs.TTL(3*time.Second))
			time.Sleep(2 * time.Second)
			wantErr(t, l.Unlock())
		},
		"Degraded": func(t *testing.T, c *dibs.Client, f *faulty) {
			f.set(func(f *faulty) { f.watch = func(context.Context) error { return errReset } })
			release(c.Mutex("n").Lock(t.Context()))
		},
		"TermFailed": func(t *testing.T, c *dibs.Client, f *faulty) {
			f.set(func(f *faulty) {
				f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
					return driver.AcquireReply{}, errReset
				}
			})
			_ = c.Election("n").Run(t.Context(), ended)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				h := &trap{exit: true}
				var lost atomic.Int32
				c := open(t, f, dibs.Observe(h.hooks(strings.Fields(kind)[0])), dibs.Observe(dibs.Hooks{Lost: func(context.Context, dibs.Lost) { lost.Add(1) }}))
				h.armed.Store(true)
				h.call(func() { cause(t, c, f) })
				synctest.Wait()
				if h.spent.Load() != 1 {
					t.Fatalf("the hook was called %d times: the test proves nothing", h.spent.Load())
				}
				f.heal()
				wantNothing(t, good, "n")
				before := lost.Load()
				l := lock(t, c, "n", dibs.MaxHold(time.Second))
				time.Sleep(2 * time.Second)
				wantLost(t, l.Unlock(), dibs.ReasonMaxHold)
				if n := lost.Load() - before; n != 1 {
					t.Errorf("%d Lost hooks were called afterwards, want 1", n)
				}
				wantNothing(t, good, "n")
			})
		})
	}
}
