package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// failExtends makes renewals fail at once.
func (f *faulty) failExtends() {
	f.set(func(f *faulty) {
		f.extend = func(_ context.Context, requests []driver.ExtendRequest) []error {
			return slices.Repeat([]error{errReset}, len(requests))
		}
	})
}

// lockMany returns n leases from a client.
func lockMany(t *testing.T, c *dibs.Client, n int, options ...dibs.Option) []*dibs.Lease {
	t.Helper()
	leases := make([]*dibs.Lease, n)
	for i := range leases {
		leases[i] = lock(t, c, fmt.Sprint("n", i), options...)
	}
	return leases
}

func lost(leases []*dibs.Lease) (n int) {
	for _, l := range leases {
		if l.Err() != nil {
			n++
		}
	}
	return n
}

// An outage shorter than the TTL loses no lease, however slow the hooks are.
func TestSlowHooksCostNoLeaseInAnOutage(t *testing.T) {
	for what, hooks := range map[string]dibs.Hooks{
		"RenewFailed": {RenewFailed: func(context.Context, dibs.RenewFailed) { time.Sleep(50 * time.Millisecond) }},
		"Renewed":     {Renewed: func(context.Context, dibs.Renewed) { time.Sleep(25 * time.Second) }},
		"both": {
			RenewFailed: func(context.Context, dibs.RenewFailed) { time.Sleep(time.Second) },
			Renewed:     func(context.Context, dibs.Renewed) { time.Sleep(time.Minute) },
		},
	} {
		for _, leases := range []int{1, 100, 512, 1100} {
			t.Run(fmt.Sprint(what, "/", leases), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f, _ := newFaulty()
					c := dibs.New(f, dibs.Observe(hooks)) // TTL 30s
					held := lockMany(t, c, leases)
					time.Sleep(9 * time.Second)
					f.failExtends()
					time.Sleep(2 * time.Second) // all leases' renewals are due in this time
					f.heal()
					time.Sleep(time.Minute)
					if n := lost(held); n > 0 {
						t.Errorf("%d of %d leases lost: %v", n, leases, held[len(held)-1].Err())
					}
					wantErr(t, c.Close())
					time.Sleep(time.Hour) // for the remaining hooks
				})
			})
		}
	}
}

// A lost lease costs no other lease, even if its hook takes most of a TTL.
func TestSlowLostHookCostsNoOtherLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var reported journal
		c := dibs.New(s, dibs.Observe(dibs.Hooks{Lost: func(_ context.Context, l dibs.Lost) {
			time.Sleep(25 * time.Second)
			reported.record(l.Name())
		}}))
		held := lockMany(t, c, 100)
		for _, l := range held[:3] {
			released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: l.Name(), Token: string(l.Token())})
			if !released || err != nil {
				t.Fatal(released, err)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := lost(held); n != 3 {
			t.Errorf("%d leases lost, want 3", n)
		}
		names := strings.Fields(reported.String())
		slices.Sort(names)
		if want := []string{"n0", "n1", "n2"}; !slices.Equal(names, want) {
			t.Errorf("hook called for %q, want %q", names, want)
		}
		for _, l := range held {
			_ = l.Unlock()
		}
		wantErr(t, c.Close())
	})
}

// A slow Degraded hook does not delay the client's grants.
func TestSlowDegradedHookDelaysNoGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		c := dibs.New(f, dibs.Observe(dibs.Hooks{Degraded: func(context.Context, dibs.Degraded) { time.Sleep(time.Minute) }}))
		first := mutex(t, s, "n")
		subscription := make(chan struct{}, 1) // a single event at a time
		f.set(func(f *faulty) {
			f.event = func(e driver.Event, on func(driver.Event)) {
				subscription <- struct{}{}
				defer func() { <-subscription }()
				on(e)
				if e.Kind == driver.EventConnected { // the subscription breaks, and is restored
					on(driver.Event{Kind: driver.EventDisconnected, Err: errReset})
					on(driver.Event{Kind: driver.EventConnected})
				}
			}
		})
		next := queue(func() (*dibs.Lease, error) { return c.Mutex("n").Lock(t.Context()) })
		begin := time.Now()
		unlock(t, first)
		wantHeld(t, next)
		if d := time.Since(begin); d > 0 {
			t.Errorf("entered %v after the release", d)
		}
		unlock(t, next)
		wantErr(t, c.Close())
		time.Sleep(time.Hour)
	})
}

// A call keeps its queue position while its Queued hook runs, and accepts a grant in the meantime.
func TestSlowQueuedHookKeepsTheQueuePosition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		first := mutex(t, s, "n")
		slow := mutex(t, s, "n", dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { time.Sleep(time.Minute) }}))
		third := mutex(t, s, "n")
		time.Sleep(20 * time.Second)
		unlock(t, first)
		time.Sleep(39 * time.Second)
		wantWaiting(t, third, slow) // slow holds the lock; its call returns only after its hook
		time.Sleep(time.Second)
		wantHeld(t, slow)
		unlock(t, slow)
		wantHeld(t, third)
		unlock(t, third)
	})
}

// A journal records the hook calls in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) record(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, what)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}

func (j *journal) hooks(slow map[string]time.Duration) dibs.Option {
	note := func(what string) {
		time.Sleep(slow[what])
		j.record(what)
	}
	return dibs.Observe(dibs.Hooks{
		AcquireEnd:  func(context.Context, dibs.AcquireEnd) { note("acquired") },
		Queued:      func(context.Context, dibs.Queued) { note("waiting") },
		RenewFailed: func(context.Context, dibs.RenewFailed) { note("failed") },
		Lost:        func(context.Context, dibs.Lost) { note("lost") },
		Released:    func(context.Context, dibs.Released) { note("released") },
	})
}

// A lease's hooks are called in order, whichever is slow.
func TestHooksOfALeaseKeepTheirOrder(t *testing.T) {
	const long = 10 * time.Second
	for what, slow := range map[string]map[string]time.Duration{
		"none":         nil,
		"acquired":     {"acquired": long},
		"waiting":      {"waiting": long},
		"failed":       {"failed": long},
		"all but lost": {"acquired": long, "waiting": long, "failed": long},
	} {
		t.Run(what, func(t *testing.T) {
			bothModes(t, func(t *testing.T, wrap storeWrapper) {
				f, s := newFaulty()
				var j journal
				c := open(t, wrap(f), dibs.TTL(3*time.Second), j.hooks(slow))
				first := mutex(t, s, "b")
				next := queue(func() (*dibs.Lease, error) { return c.All([]string{"a", "b"}).Lock(t.Context()) })
				f.failExtends()
				unlock(t, first)
				time.Sleep(2 * long)
				wantHeld(t, next)
				time.Sleep(2 * long)
				if err := next.lease.Err(); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("error %v, want ErrLost", err)
				}
				have := j.String()
				lines := slices.Compact(strings.Fields(have))
				without := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return s == "failed" })
				if want := []string{"waiting", "acquired", "lost"}; !slices.Equal(without, want) || lines[len(lines)-1] != "lost" {
					t.Errorf("hooks %q, want %q with failures before the loss", have, want)
				}
				f.heal()
				_ = next.lease.Unlock()
			})
		})
	}
}

// provokeHooks causes each hook for a client with the store f, in turn.
func provokeHooks(t *testing.T, f *faulty, s driver.Store, c *dibs.Client) {
	l, err := c.Mutex("fine").Lock(t.Context(), dibs.TTL(3*time.Second))
	if err != nil {
		return
	}
	time.Sleep(1500 * time.Millisecond) // renewed
	_ = l.Unlock()
	if l, err = c.Mutex("gone").Lock(t.Context(), dibs.TTL(3*time.Second)); err != nil {
		return
	}
	f.failExtends()
	time.Sleep(5 * time.Second) // failed and lost
	f.heal()
	_ = l.Unlock()
	holder := mutex(t, s, "taken")
	time.AfterFunc(time.Second, func() { unlock(t, holder) })
	if l, err = c.Mutex("taken").Lock(t.Context()); err == nil {
		_ = l.Unlock()
	}
	_ = c.Election("led").Run(t.Context(), func(context.Context) error { return nil }, dibs.Wait(time.Second))
}

// Close may be called in any hook: it returns, and so does the call that runs the hook.
func TestCloseInAHook(t *testing.T) {
	for _, what := range []string{"AcquireStart", "Queued", "AcquireEnd", "Renewed", "RenewFailed", "Lost", "Released", "Degraded", "TermFailed"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, s := newFaulty()
				var c *dibs.Client
				closed := make(chan time.Duration, 1)
				var once sync.Once
				in := func(hook string) {
					if hook != what {
						return
					}
					once.Do(func() {
						begin := time.Now()
						if err := c.Close(); err != nil && !errors.Is(err, dibs.ErrUnavailable) {
							t.Errorf("close: %v", err)
						}
						closed <- time.Since(begin)
					})
				}
				c = dibs.New(f, dibs.Observe(dibs.Hooks{
					AcquireStart: func(ctx context.Context, _ dibs.AcquireStart) context.Context {
						in("AcquireStart")
						return ctx
					},
					AcquireEnd:  func(context.Context, dibs.AcquireEnd) { in("AcquireEnd") },
					Queued:      func(context.Context, dibs.Queued) { in("Queued") },
					Renewed:     func(context.Context, dibs.Renewed) { in("Renewed") },
					RenewFailed: func(context.Context, dibs.RenewFailed) { in("RenewFailed") },
					Lost:        func(context.Context, dibs.Lost) { in("Lost") },
					Released:    func(context.Context, dibs.Released) { in("Released") },
					Degraded:    func(context.Context, dibs.Degraded) { in("Degraded") },
					TermFailed:  func(context.Context, dibs.TermFailed) { in("TermFailed") },
				}))
				leader := mutex(t, s, "led")
				if what == "Degraded" {
					f.set(func(f *faulty) { f.watch = func(context.Context) error { return errReset } })
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					provokeHooks(t, f, s, c)
				}()
				select {
				case took := <-closed:
					if took > 4*time.Second {
						t.Errorf("Close took %v", took)
					}
				case <-time.After(20 * time.Second):
					t.Fatal("Close, called in the hook, has not returned")
				}
				unlock(t, leader)
				<-ended
				for _, name := range []string{"taken", "led"} {
					if state, err := driver.Complete(s).Inspect(t.Context(), name); err != nil || state.Waiting > 0 {
						t.Errorf("%+v, %v: want an empty queue", state, err)
					}
				}
				wantErr(t, c.Close())
			}) // the bubble fails if a goroutine is left
		})
	}
}

// Close may be called in the work under a lock, and by several goroutines at once.
func TestCloseInDo(t *testing.T) {
	ctx := context.Background()
	for what, do := range map[string]func(c *dibs.Client, fn func(context.Context) error) error{
		"Mutex":  func(c *dibs.Client, fn func(context.Context) error) error { return c.Mutex("n").Do(ctx, fn) },
		"nested": func(c *dibs.Client, fn func(context.Context) error) error { return c.Mutex("n").Do(ctx, nested(c, fn)) },
		"Set": func(c *dibs.Client, fn func(context.Context) error) error {
			return c.All([]string{"a", "n"}).Do(ctx, fn)
		},
		"Semaphore": func(c *dibs.Client, fn func(context.Context) error) error {
			return c.Semaphore("n", 2).Permits(1).Do(ctx, fn)
		},
		"Election": func(c *dibs.Client, fn func(context.Context) error) error { return c.Election("n").Run(ctx, fn) },
		"Once": func(c *dibs.Client, fn func(context.Context) error) error {
			return c.Once("n", time.Minute).Do(ctx, fn)
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				c := dibs.New(s)
				err := do(c, func(ctx context.Context) error {
					var group sync.WaitGroup
					for range 5 {
						group.Go(func() { wantErr(t, c.Close()) })
					}
					group.Wait()
					<-ctx.Done()
					wantLost(t, context.Cause(ctx), dibs.ReasonClosed)
					return nil
				})
				if !errors.Is(err, dibs.ErrLost) && !errors.Is(err, dibs.ErrClosed) {
					t.Errorf("error %v, want ErrLost or ErrClosed", err)
				}
			})
		})
	}
}

func nested(c *dibs.Client, fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return c.Mutex("n").Do(ctx, fn, dibs.Reentrant()) }
}

// The store's own client may have hooks, too, which run inside each operation.
func TestCloseInAnOperationOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := dibs.New(f)
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, request driver.AcquireRequest) (driver.AcquireReply, error) {
				wantErr(t, c.Close())
				return f.Store.Acquire(ctx, request)
			}
		})
		begin := time.Now()
		if _, err := c.Mutex("n").Lock(t.Context()); err == nil {
			t.Error("locked by a closed client")
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
