package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// resultOf names a call's result, as a metric would.
func resultOf(err error) string {
	for _, kind := range []error{dibs.ErrBusy, dibs.ErrUnavailable, dibs.ErrClosed, dibs.ErrLost, context.Canceled} {
		if errors.Is(err, kind) {
			return strings.TrimPrefix(kind.Error(), "dibs: ")
		}
	}
	if err != nil {
		return err.Error()
	}
	return "held"
}

// all returns hooks that record each event for a call or lease in a line.
func (j *journal) all() dibs.Hooks {
	lock := func(e dibs.LockInfo) string {
		return fmt.Sprintf("%s(%s %d/%d)", e.Kind, strings.Join(e.Names, "+"), e.Weight, e.Limit)
	}
	add := func(format string, args ...any) { j.record(fmt.Sprintf(format, args...)) }
	return dibs.Hooks{
		AcquireStart: func(ctx context.Context, e dibs.AcquireStart) context.Context {
			add("start %s try=%v", lock(e.LockInfo), e.Try)
			return ctx
		},
		Queued: func(_ context.Context, e dibs.Queued) { add("queued %s %d", lock(e.LockInfo), e.Position) },
		AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) {
			if (e.Err == nil) != (e.Fence > 0 && e.TTL > 0) || e.Err == nil && e.Token == "" {
				add("(%+v)", e)
			}
			add("end %s %s waited=%v queued=%v notified=%v", lock(e.LockInfo), resultOf(e.Err), e.Waited, e.Queued, e.Notified)
		},
		Lost: func(_ context.Context, e dibs.Lost) {
			add("lost %s held=%v reason=%s", lock(e.LockInfo), e.Held, e.Reason)
		},
		Released: func(_ context.Context, e dibs.Released) {
			add("released %s held=%v %v", lock(e.LockInfo), e.Held, e.Err)
		},
	}
}

// Each call has a single start and a single end, however it ends, and each lease a single last
// event.
func TestHooksSeeEachCall(t *testing.T) {
	ctx := context.Background()
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	hold := func(l *dibs.Lease, err error) error {
		if err == nil {
			time.Sleep(time.Second)
			err = l.Unlock()
		}
		return err
	}
	for what, c := range map[string]struct {
		run  func(c *dibs.Client) error
		want string
	}{
		"lock": {
			func(c *dibs.Client) error { return hold(c.Mutex("n").Lock(ctx)) },
			"start mutex(n 1/1) try=false, end mutex(n 1/1) held waited=0s queued=false notified=false, released mutex(n 1/1) held=1s <nil>",
		},
		"try": {
			func(c *dibs.Client) error { return hold(c.Mutex("taken").TryLock(ctx)) },
			"start mutex(taken 1/1) try=true, end mutex(taken 1/1) busy waited=0s queued=false notified=false",
		},
		"Wait(0)": {
			func(c *dibs.Client) error { return hold(c.Mutex("taken").Lock(ctx, dibs.Wait(0))) },
			"start mutex(taken 1/1) try=true, end mutex(taken 1/1) busy waited=0s queued=false notified=false",
		},
		"wait in vain": {
			func(c *dibs.Client) error { return hold(c.Mutex("taken").Lock(ctx, dibs.Wait(3*time.Second))) },
			"start mutex(taken 1/1) try=false, queued mutex(taken 1/1) 1, end mutex(taken 1/1) busy waited=3s queued=true notified=false",
		},
		"wait and get": {
			func(c *dibs.Client) error { return hold(c.Mutex("released").Lock(ctx)) },
			"start mutex(released 1/1) try=false, queued mutex(released 1/1) 1, end mutex(released 1/1) held waited=9s queued=true notified=true, released mutex(released 1/1) held=1s <nil>",
		},
		"attempts": {
			func(c *dibs.Client) error { return hold(c.Mutex("taken").Lock(ctx, dibs.Attempts(3, time.Second))) },
			"start mutex(taken 1/1) try=false, end mutex(taken 1/1) busy waited=2s queued=false notified=false",
		},
		"ended context": {
			func(c *dibs.Client) error { return hold(c.Mutex("n").Lock(canceled)) },
			"start mutex(n 1/1) try=false, end mutex(n 1/1) context canceled waited=0s queued=false notified=false",
		},
		"closed": {
			func(c *dibs.Client) error { _ = c.Close(); return hold(c.Mutex("n").Lock(ctx)) },
			"start mutex(n 1/1) try=false, end mutex(n 1/1) client closed waited=0s queued=false notified=false",
		},
		"bad name": {func(c *dibs.Client) error { return hold(c.Mutex("").Lock(ctx)) }, ""},
		"bad TTL":  {func(c *dibs.Client) error { return hold(c.Mutex("n").Lock(ctx, dibs.TTL(1))) }, ""},
		"reentrant": {
			func(c *dibs.Client) error {
				return c.Mutex("n").Do(ctx, func(ctx context.Context) error {
					if err := hold(c.Mutex("n").Lock(ctx)); !errors.Is(err, dibs.ErrReentrant) {
						t.Errorf("error %v, want ErrReentrant", err)
					}
					return hold(c.Mutex("n").Lock(ctx, dibs.Reentrant()))
				})
			},
			"start mutex(n 1/1) try=false, end mutex(n 1/1) held waited=0s queued=false notified=false, released mutex(n 1/1) held=1s <nil>",
		},
		"reader": {
			func(c *dibs.Client) error { return hold(c.RWMutex("n").Reader().Lock(ctx)) },
			"start reader(n 1/2147483647) try=false, end reader(n 1/2147483647) held waited=0s queued=false notified=false, released reader(n 1/2147483647) held=1s <nil>",
		},
		"writer": {
			func(c *dibs.Client) error { return hold(c.RWMutex("n").Writer().TryLock(ctx)) },
			"start writer(n 2147483647/2147483647) try=true, end writer(n 2147483647/2147483647) held waited=0s queued=false notified=false, released writer(n 2147483647/2147483647) held=1s <nil>",
		},
		"semaphore": {
			func(c *dibs.Client) error { return hold(c.Semaphore("n", 5).Permits(2).Lock(ctx)) },
			"start semaphore(n 2/5) try=false, end semaphore(n 2/5) held waited=0s queued=false notified=false, released semaphore(n 2/5) held=1s <nil>",
		},
		"multi": {
			func(c *dibs.Client) error { return hold(c.All([]string{"b", "a", "c"}).Lock(ctx)) },
			"start multi(a+b+c 1/1) try=false, end multi(a+b+c 1/1) held waited=0s queued=false notified=false, released multi(a+b+c 1/1) held=1s <nil>",
		},
		"multi in vain": {
			func(c *dibs.Client) error {
				return hold(c.All([]string{"a", "taken"}).Lock(ctx, dibs.Wait(time.Second)))
			},
			"start multi(a+taken 1/1) try=false, queued multi(a+taken 1/1) 1, end multi(a+taken 1/1) busy waited=1s queued=true notified=false",
		},
		"election": {
			func(c *dibs.Client) error { return hold(c.Election("n").Campaign(ctx)) },
			"start election(n 1/1) try=false, end election(n 1/1) held waited=0s queued=false notified=false, released election(n 1/1) held=1s <nil>",
		},
		"once": {
			func(c *dibs.Client) error {
				return c.Once("n", time.Minute).Do(ctx, func(context.Context) error { return nil })
			},
			"start once(n 1/1) try=true, end once(n 1/1) held waited=0s queued=false notified=false, released once(n 1/1) held=0s <nil>",
		},
		"attached": {
			func(c *dibs.Client) error {
				if err := hold(c.Attach(ctx, dibs.NewHandle("n", "nobody"))); !errors.Is(err, dibs.ErrLost) { // without an event
					return err
				}
				return hold(c.Attach(ctx, dibs.NewHandle("attached", "theirs"), dibs.NoRenew()))
			},
			"released attached(attached 0/0) held=1s <nil>",
		},
		"lost": {
			func(c *dibs.Client) error { return hold(c.Mutex("n").Lock(ctx, dibs.MaxHold(500*time.Millisecond))) },
			"start mutex(n 1/1) try=false, end mutex(n 1/1) held waited=0s queued=false notified=false, lost mutex(n 1/1) held=490ms reason=max_hold",
		},
	} {
		t.Run(what, func(t *testing.T) {
			bothModes(t, func(t *testing.T, wrap storeWrapper) {
				s := memstore.New()
				mutex(t, s, "taken")
				later := mutex(t, s, "released")
				lock(t, open(t, s), "attached", dibs.OwnerToken("theirs"))
				time.AfterFunc(9*time.Second, func() { unlock(t, later) }) // between two heartbeats
				var j journal
				client := open(t, wrap(s), dibs.Observe(j.all()))
				_ = c.run(client) // the events show the outcome
				time.Sleep(time.Minute)
				j.mu.Lock()
				defer j.mu.Unlock()
				if have := strings.Join(j.lines, ", "); have != c.want {
					t.Errorf("events\n%s\nwant\n%s", have, c.want)
				}
			})
		})
	}
}

// A call without an answer from the store gets an end event as well.
func TestHooksSeeAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		var j journal
		c := open(t, f, dibs.Observe(j.all()))
		f.hangAll()
		if _, err := c.Mutex("n").Lock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		f.heal()
		want := "start mutex(n 1/1) try=false end mutex(n 1/1) store unavailable waited=1s queued=false notified=false"
		if have := j.String(); have != want {
			t.Errorf("events %q, want %q", have, want)
		}
	})
}

// Hooks at a nearer level silence no outer hooks. The outermost run first.
func TestHooksOfAllLevelsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		level := func(name string) dibs.Option {
			hooks := dibs.Hooks{
				AcquireStart: func(ctx context.Context, _ dibs.AcquireStart) context.Context {
					j.record("start:" + name)
					return ctx
				},
				AcquireEnd: func(context.Context, dibs.AcquireEnd) { j.record("end:" + name) },
				Released:   func(context.Context, dibs.Released) { j.record("released:" + name) },
			}
			if name == "client" {
				hooks.Renewed = func(context.Context, dibs.Renewed) { j.record("renewed:" + name) }
			}
			return dibs.Observe(hooks)
		}
		c := open(t, memstore.New(), level("client"), dibs.Observe(dibs.Hooks{}))
		m := c.Mutex("n", level("lock"))
		for range 2 { // a call's hooks apply to that call only
			l, err := m.Lock(t.Context(), level("call"), level("call2"), dibs.TTL(3*time.Second))
			wantErr(t, err)
			time.Sleep(time.Second + time.Millisecond) // the first renewal comes after half a second to a second
			wantErr(t, l.Unlock())
		}
		once := "start:client start:lock start:call start:call2 end:client end:lock end:call end:call2 renewed:client " +
			"released:client released:lock released:call released:call2"
		if have, want := j.String(), once+" "+once; have != want {
			t.Errorf("hooks %q, want %q", have, want)
		}
	})
}

type hookKey struct{}

// AcquireStart's context reaches the store and the other hooks, and never ends there. The lease
// keeps the caller's context.
func TestHookContexts(t *testing.T) {
	bothModes(t, func(t *testing.T, wrap storeWrapper) {
		f, s := newFaulty()
		var j journal
		see := func(what string, ctx context.Context) {
			j.record(fmt.Sprintf("%s:%v", what, ctx.Value(hookKey{})))
			if what != "store" && (ctx.Done() != nil || ctx.Err() != nil) {
				t.Errorf("%s: the context can end", what)
			}
		}
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				if r.Client != "" && ctx.Value(hookKey{}) != nil {
					see("store", ctx)
				}
				return f.Store.Acquire(ctx, r)
			}
		})
		hooks := dibs.Hooks{
			AcquireStart: func(ctx context.Context, _ dibs.AcquireStart) context.Context {
				j.record(fmt.Sprintf("start:%v", ctx.Value(hookKey{})))
				return context.WithValue(ctx, hookKey{}, "span")
			},
			Queued:     func(ctx context.Context, _ dibs.Queued) { see("queued", ctx) },
			AcquireEnd: func(ctx context.Context, _ dibs.AcquireEnd) { see("end", ctx) },
			Released:   func(ctx context.Context, _ dibs.Released) { see("released", ctx) },
			Lost:       func(ctx context.Context, _ dibs.Lost) { see("lost", ctx) },
		}
		none := dibs.Observe(dibs.Hooks{AcquireStart: func(context.Context, dibs.AcquireStart) context.Context { return nil }})
		c := open(t, wrap(f), dibs.Observe(hooks), none)
		taken := mutex(t, s, "b")
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), hookKey{}, "caller"))
		call := queue(func() (*dibs.Lease, error) { return c.All([]string{"a", "b"}).Lock(ctx) })
		unlock(t, taken)
		wantHeld(t, call)
		cancel() // bounds the waiting only
		if have := call.lease.Context().Value(hookKey{}); have != "caller" {
			t.Errorf("value %v in the context of the lease, want the caller's", have)
		}
		unlock(t, call)
		l := lock(t, c, "n", dibs.MaxHold(time.Second), dibs.NoRenew())
		time.Sleep(2 * time.Second)
		wantLost(t, l.Err(), dibs.ReasonMaxHold)
		synctest.Wait()
		lines := slices.Compact(strings.Fields(j.String()))
		want := []string{
			"start:caller", "store:span", "queued:span", "store:span", "end:span", "released:span",
			"start:<nil>", "store:span", "end:span", "lost:span",
		}
		// The second request in a single step is not needed after a hand-off.
		short := slices.Delete(slices.Clone(want), 3, 4)
		if !slices.Equal(lines, want) && !slices.Equal(lines, short) {
			t.Errorf("contexts %q, want %q", lines, want)
		}
	})
}

// Each request by a call and its lease sees AcquireStart's value, such as a span, also in the
// background. Only renewals see none: they concern many leases.
func TestHookContextInEachRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		var j journal
		see := func(what string, ctx context.Context) { j.record(fmt.Sprintf("%s:%v", what, ctx.Value(hookKey{}))) }
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, _ driver.ReleaseRequest) (bool, error) {
				see("release", ctx)
				return false, errReset
			}
			f.cancel = func(ctx context.Context, r driver.AcquireRequest) error {
				see("cancel", ctx)
				return f.Store.Cancel(ctx, r)
			}
			f.notify = func(ctx context.Context, _ driver.WantedRequest) (bool, error) {
				see("notify", ctx)
				return false, nil
			}
			f.extend = func(ctx context.Context, requests []driver.ExtendRequest) []error {
				see("extend", ctx)
				return f.Store.Extend(ctx, requests)
			}
		})
		c := open(t, f, dibs.Observe(dibs.Hooks{AcquireStart: func(ctx context.Context, _ dibs.AcquireStart) context.Context {
			return context.WithValue(ctx, hookKey{}, "span")
		}}))
		l := lock(t, c, "n")
		l.Wanted()
		time.Sleep(11 * time.Second) // a single renewal
		if err := l.Unlock(); !errors.Is(err, dibs.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
		f.set(func(f *faulty) { f.release = nil })
		wantErr(t, c.Mutex("yield").Do(t.Context(), func(ctx context.Context) error { return carried.Yield(ctx, "yield") }))
		mutex(t, s, "taken")
		_, err := c.Mutex("taken").Lock(t.Context(), dibs.Wait(time.Second))
		wantErr(t, err, dibs.ErrBusy)
		lock(t, c, "lost", dibs.MaxHold(time.Second), dibs.NoRenew())
		time.Sleep(time.Minute)
		lines := strings.Fields(j.String())
		slices.Sort(lines)
		want := []string{"cancel:span", "extend:<nil>", "notify:span", "release:span"}
		if have := slices.Compact(lines); !slices.Equal(have, want) {
			t.Errorf("requests %q, want %q", have, want)
		}
	})
}

// The contexts for hooks and releases show no trace of the end of the caller's context.
func TestHookContextHasNoEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		seen := 0
		check := func(what string, ctx context.Context) {
			seen++
			_, ends := ctx.Deadline()
			if err := context.Cause(ctx); err != nil || ctx.Err() != nil || ends || ctx.Value(hookKey{}) != "caller" {
				t.Errorf("%s: cause %v, error %v, value %v", what, err, ctx.Err(), ctx.Value(hookKey{}))
			}
			child, stop := context.WithCancelCause(ctx)
			stop(errReset)
			if err := context.Cause(child); !errors.Is(err, errReset) {
				t.Errorf("%s: cause %v of a child, want its own", what, err)
			}
		}
		f.set(func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				check("release", ctx)
				return f.Store.Release(ctx, r)
			}
		})
		c := open(t, f, dibs.Observe(dibs.Hooks{Released: func(ctx context.Context, _ dibs.Released) { check("hook", ctx) }}))
		parent, stop := context.WithTimeout(context.WithValue(t.Context(), hookKey{}, "caller"), time.Second)
		ctx, cancel := context.WithCancelCause(parent)
		l, err := c.Mutex("n").Lock(ctx)
		wantErr(t, err)
		cancel(errors.New("the request has ended"))
		stop()
		wantErr(t, l.Unlock())
		if seen != 2 {
			t.Errorf("%d contexts, want 2", seen)
		}
	})
}

// A request is lost while the grant lives. The next request arrives after the grant expired, and
// the grant's notification even later.
func TestHookContextBoundsTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		mutex(t, s, "n")
		c := open(t, s, dibs.Observe(dibs.Hooks{AcquireStart: func(ctx context.Context, _ dibs.AcquireStart) context.Context {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			context.AfterFunc(ctx, cancel)
			return ctx
		}}))
		begin := time.Now()
		_, err := c.Mutex("n").Lock(t.Context())
		if !errors.Is(err, dibs.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// Headroom is a lease's remaining time when its renewal is confirmed.
func TestRenewedHeadroom(t *testing.T) {
	for what, c := range map[string]struct {
		outage   time.Duration
		min, max float64
	}{
		"healthy":    {0, 0.65, 0.67},
		"an outage":  {5 * time.Second, 0.47, 0.51},
		"a near one": {18 * time.Second, 0.01, 0.07},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, _ := newFaulty()
				var renewals []dibs.Renewed
				c2 := open(t, f, dibs.Observe(dibs.Hooks{Renewed: func(_ context.Context, e dibs.Renewed) { renewals = append(renewals, e) }}))
				l := lock(t, c2, "n", dibs.TTL(30*time.Second))
				lock(t, c2, "fixed", dibs.TTL(30*time.Second), dibs.NoRenew()) // does not count
				first := l.Deadline()
				for l.Deadline().Sub(first) < time.Second { // the first renewal is earlier than others
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(9 * time.Second)
				synctest.Wait()
				renewals = nil
				f.failExtends()
				time.Sleep(time.Second + c.outage)
				f.heal()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				least := 1.0
				for _, e := range renewals {
					least = min(least, e.Headroom)
				}
				if least < c.min || least > c.max {
					t.Errorf("renewals %+v, want a headroom of %v to %v", renewals, c.min, c.max)
				}
				wantErr(t, l.Err())
			})
		})
	}
}

// Each event names its client, so that hooks can serve several clients.
func TestEventsNameTheirClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFailing()
		var mu sync.Mutex
		events := make(map[string]string) // the client, by the event's name
		see := func(event string, ctx context.Context, client string) {
			mu.Lock()
			defer mu.Unlock()
			events[event] = client
			if event != "AcquireStart" && (ctx == nil || ctx.Done() != nil) {
				t.Errorf("%s: the context can end", event)
			}
		}
		c := open(t, f, dibs.TTL(3*time.Second), dibs.Observe(dibs.Hooks{
			AcquireStart: func(ctx context.Context, e dibs.AcquireStart) context.Context {
				see("AcquireStart", ctx, e.Client)
				return ctx
			},
			Queued:      func(ctx context.Context, e dibs.Queued) { see("Queued", ctx, e.Client) },
			AcquireEnd:  func(ctx context.Context, e dibs.AcquireEnd) { see("AcquireEnd", ctx, e.Client) },
			Released:    func(ctx context.Context, e dibs.Released) { see("Released", ctx, e.Client) },
			Renewed:     func(ctx context.Context, e dibs.Renewed) { see("Renewed", ctx, e.Client) },
			RenewFailed: func(ctx context.Context, e dibs.RenewFailed) { see("RenewFailed", ctx, e.Client) },
			Lost:        func(ctx context.Context, e dibs.Lost) { see("Lost", ctx, e.Client) },
			Degraded:    func(ctx context.Context, e dibs.Degraded) { see("Degraded", ctx, e.Client) },
			TermFailed:  func(ctx context.Context, e dibs.TermFailed) { see("TermFailed", ctx, e.Client) },
		}))
		first := lock(t, c, "n")
		_, err := c.Mutex("n").Lock(t.Context(), dibs.Wait(2*time.Second))
		wantErr(t, err, dibs.ErrBusy)
		wantErr(t, first.Unlock())
		last := lock(t, c, "m")
		ctx, cancel := context.WithCancel(t.Context())
		f.failWith(&driver.UnavailableError{Op: "test", Cause: context.DeadlineExceeded})
		go func() { _ = c.Election("e").Run(ctx, func(context.Context) error { return nil }) }()
		time.Sleep(10 * time.Second)
		cancel()
		f.failWith(nil)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(events) != 9 {
			t.Errorf("events %v, want all nine", events)
		}
		for event, client := range events {
			if client == "" || !strings.HasPrefix(string(last.Token()), client+":") {
				t.Errorf("%s has the client %q, want that of the token %s", event, client, string(last.Token()))
			}
		}
	})
}
