package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// failing is a store whose operations all return an error, as soon as an error is set.
type failing struct {
	*driver.Full
	mu  sync.Mutex
	err error
}

func newFailing() *failing { return &failing{Full: driver.Complete(memstore.New())} }

func (f *failing) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// reply returns an operation's result, or the store's error.
func reply[T any](f *failing, operation func() (T, error)) (T, error) {
	if err := f.failure(); err != nil {
		return *new(T), err
	}
	return operation()
}

func (f *failing) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return reply(f, func() (driver.AcquireReply, error) { return f.Full.Acquire(ctx, r) })
}

func (f *failing) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	_, err := reply(f, func() (bool, error) { return true, f.Full.Cancel(ctx, r) })
	return err
}

func (f *failing) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return reply(f, func() (bool, error) { return f.Full.Release(ctx, r) })
}

func (f *failing) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	if err := f.failure(); err != nil {
		return repeated(err, len(requests))
	}
	return f.Full.Extend(ctx, requests)
}

func (f *failing) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return reply(f, func() (driver.AcquireReply, error) { return f.Full.Resize(ctx, r) })
}

func (f *failing) Revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	return reply(f, func() (bool, error) { return f.Full.Revoke(ctx, r) })
}

func (f *failing) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	return reply(f, func() (bool, error) { return f.Full.NotifyWanted(ctx, r) })
}

func (f *failing) Inspect(ctx context.Context, name string) (driver.State, error) {
	return reply(f, func() (driver.State, error) { return f.Full.Inspect(ctx, name) })
}

func (f *failing) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	return reply(f, func() ([]driver.State, error) { return f.Full.InspectAll(ctx, names) })
}

func (f *failing) List(ctx context.Context, pattern string) ([]string, error) {
	return reply(f, func() ([]string, error) { return f.Full.List(ctx, pattern) })
}

func (f *failing) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	return reply(f, func() (driver.FenceReply, error) { return f.Full.ReserveFences(ctx, r) })
}

func (f *failing) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for f.failure() == nil && within.Err() == nil {
			select {
			case <-within.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
		cancel()
	}()
	_, _ = reply(f, func() (bool, error) { return true, f.Full.Watch(within, client, busy, on) })
	if ctx.Err() == nil {
		on(driver.Event{Kind: driver.EventDisconnected, Err: f.failure()})
	}
	<-ctx.Done()
	return ctx.Err()
}

// exits returns the errors from all methods and hooks that can report a store failure. All fail.
func exits(t *testing.T, f *failing, failure error) map[string]error {
	t.Helper()
	var mu sync.Mutex
	all := make(map[string]error)
	record := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if all[what] == nil {
			all[what] = err
		}
	}
	c := dibs.New(f, dibs.TTL(10*time.Minute), dibs.Observe(dibs.Hooks{
		AcquireEnd:  func(_ context.Context, e dibs.AcquireEnd) { record("hook AcquireEnd", e.Err) },
		Released:    func(_ context.Context, e dibs.Released) { record("hook Released", e.Err) },
		RenewFailed: func(_ context.Context, e dibs.RenewFailed) { record("hook RenewFailed", e.Err) },
		Lost:        func(_ context.Context, e dibs.Lost) { record("hook Lost", e.Err) },
		Degraded:    func(_ context.Context, e dibs.Degraded) { record("hook Degraded", e.Err) },
		TermFailed:  func(_ context.Context, e dibs.TermFailed) { record("hook TermFailed", e.Err) },
	}))
	ctx := t.Context()
	leases := map[string]*dibs.Lease{"renewal": lock(t, c, "renewal", dibs.TTL(3*time.Second))}
	for _, name := range []string{"extend", "wanted", "fences", "unlock"} {
		leases[name] = lock(t, c, name)
	}
	rw := c.RWMutex("rw")
	writer, err := rw.Writer().Lock(ctx)
	wantErr(t, err)
	reader, err := c.RWMutex("rw2").Reader().Lock(ctx)
	wantErr(t, err)
	attached, err := c.Attach(ctx, leases["extend"].Handle())
	wantErr(t, err)
	time.Sleep(50 * time.Millisecond) // virtual: the watch is established
	f.failWith(failure)

	nothing := func(context.Context) error { return nil }
	acquires := map[string]func() (*dibs.Lease, error){
		"Mutex.Lock":           func() (*dibs.Lease, error) { return c.Mutex("a").Lock(ctx) },
		"Mutex.TryLock":        func() (*dibs.Lease, error) { return c.Mutex("a").TryLock(ctx) },
		"Mutex.Lock, attempts": func() (*dibs.Lease, error) { return c.Mutex("a").Lock(ctx, dibs.Attempts(2, time.Second)) },
		"Mutex.Lock, token":    func() (*dibs.Lease, error) { return c.Mutex("a").Lock(ctx, dibs.OwnerToken("secret")) },
		"Writer.Lock":          func() (*dibs.Lease, error) { return c.RWMutex("a").Writer().Lock(ctx) },
		"Reader.Lock":          func() (*dibs.Lease, error) { return c.RWMutex("a").Reader().Lock(ctx) },
		"Permits.Lock":         func() (*dibs.Lease, error) { return c.Semaphore("a", 3).Permits(2).Lock(ctx) },
		"MultiMutex.Lock":      func() (*dibs.Lease, error) { return c.All([]string{"a", "b"}).Lock(ctx) },
		"Election.Campaign":    func() (*dibs.Lease, error) { return c.Election("a").Campaign(ctx) },
	}
	for what, acquire := range acquires {
		_, err := acquire()
		record(what, err)
	}
	others := map[string]func() error{
		"Mutex.Do": func() error { return c.Mutex("a").Do(ctx, nothing) },
		"Call": func() error {
			_, err := dibs.Call(ctx, c.Mutex("a"), func(context.Context) (int, error) { return 0, nil })
			return err
		},
		"Once.Do":                func() error { return c.Once("a", time.Hour).Do(ctx, nothing) },
		"Lease.Extend":           func() error { return leases["extend"].Extend(ctx, time.Minute) },
		"Lease.Extend, attached": func() error { return attached.Extend(ctx, time.Minute) },
		"Lease.IsWanted":         func() error { _, err := leases["wanted"].IsWanted(ctx); return err },
		"Lease.ReserveFences":    func() error { _, err := leases["fences"].ReserveFences(ctx, 1); return err },
		"Lease.Unlock":           leases["unlock"].Unlock,
		"Lease.Downgrade":        func() error { return writer.Downgrade(ctx) },
		"Lease.TryUpgrade":       func() error { return reader.TryUpgrade(ctx) },
		"Client.Inspect":         func() error { _, err := c.Inspect(ctx, "a"); return err },
		"Client.List":            func() error { _, err := listed(c, "*"); return err },
		"Client.Revoke":          func() error { _, err := c.Revoke(ctx, "a", dibs.Holder{Fence: 1}, ""); return err },
		"Client.Check":           func() error { return c.Check(ctx) },
		"Election.Leader":        func() error { _, err := c.Election("a").Leader(ctx); return err },
		"Election.Watch": func() error {
			for _, err := range c.Election("a").Watch(ctx) {
				return err
			}
			return nil
		},
	}
	for what, call := range others {
		record(what, call())
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = c.Election("a").Run(within, nothing) }()
	for leases["renewal"].Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	record("Lease.Err", leases["renewal"].Err())
	time.Sleep(11 * time.Second) // the campaign failed as well
	cancel()
	_ = c.Close()
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	return all
}

// Each store failure has this package's type, whichever way it takes to the caller, and however the
// store wraps it.
func TestFailuresHaveTheTypeOfThisPackage(t *testing.T) {
	cause := errors.New("connection reset")
	for what, failure := range map[string]error{
		"no answer": &driver.UnavailableError{Op: "test", Name: "x", Cause: cause},
		"refused":   &driver.UnavailableError{Op: "test", Name: "x", Cause: cause, Refused: true},
		"not sent":  &driver.UnavailableError{Op: "test", Name: "x", Cause: cause, Unsent: true, Unreached: true},
		"decorated": fmt.Errorf("primary: %w", &driver.UnavailableError{Op: "test", Name: "x", Cause: cause}),
		"a cause":   &driver.UnavailableError{Op: "test", Name: "x", Cause: fmt.Errorf("node 1: %w", &driver.UnavailableError{Op: "test", Cause: cause})},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				all := exits(t, newFailing(), failure)
				for _, hook := range []string{"AcquireEnd", "Released", "RenewFailed", "Lost", "Degraded", "TermFailed"} {
					if _, called := all["hook "+hook]; !called {
						t.Errorf("the hook %s was not called", hook)
					}
				}
				for exit, err := range all {
					var u *dibs.UnavailableError
					if !errors.As(err, &u) || !errors.Is(err, dibs.ErrUnavailable) || !errors.Is(err, cause) {
						t.Errorf("%s: %v: want an UnavailableError, with its cause", exit, err)
						continue
					}
					var of *driver.UnavailableError
					if !errors.As(err, &of) {
						t.Errorf("%s: %#v: the error of the store is not found", exit, u)
					}
				}
			})
		})
	}
}

// Unknown says whether any of a call's requests may have taken effect.
func TestUnknownOutcome(t *testing.T) {
	cause := errors.New("connection reset")
	lost := &driver.UnavailableError{Op: "acquire", Cause: cause}
	refused := &driver.UnavailableError{Op: "acquire", Cause: cause, Refused: true}
	unsent := &driver.UnavailableError{Op: "acquire", Cause: cause, Unsent: true}
	for what, test := range map[string]struct {
		replies []error // the last is repeated
		unknown bool
	}{
		"no answer":            {[]error{lost}, true},
		"refused":              {[]error{refused}, false},
		"not sent":             {[]error{unsent}, false},
		"lost, then refused":   {[]error{lost, refused}, true},
		"lost, then not sent":  {[]error{lost, unsent}, true},
		"not sent, then lost":  {[]error{unsent, lost}, true},
		"not sent, no refusal": {[]error{unsent, refused}, false},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, _ := newFaulty()
				c := open(t, f)
				l := lock(t, c, "held", dibs.NoRenew())
				next := func(replies []error) func() error {
					return func() error {
						err := replies[0]
						replies = replies[min(1, len(replies)-1):]
						return err
					}
				}
				acquire, extend := next(test.replies), next(test.replies)
				f.set(func(f *faulty) {
					f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
						return driver.AcquireReply{}, acquire()
					}
					f.extend = func(_ context.Context, requests []driver.ExtendRequest) []error {
						return repeated(extend(), len(requests))
					}
				})
				_, locked := c.Mutex("n").Lock(t.Context())
				for verb, err := range map[string]error{"Lock": locked, "Extend": l.Extend(t.Context(), time.Minute)} {
					var u *dibs.UnavailableError
					if !errors.As(err, &u) || u.Unknown != test.unknown {
						t.Errorf("%s: %#v, want Unknown %v", verb, err, test.unknown)
					}
				}
				f.heal()
			})
		})
	}
}

// A request that only reads has no effect that could be unknown.
func TestReadsAreNeverUnknown(t *testing.T) {
	f := newFailing()
	c := open(t, f)
	f.failWith(&driver.UnavailableError{Op: "inspect", Cause: context.DeadlineExceeded})
	_, err := c.Inspect(t.Context(), "n")
	var u *dibs.UnavailableError
	if !errors.As(err, &u) || u.Unknown {
		t.Errorf("%#v, want a known outcome", err)
	}
	f.failWith(nil)
}

// The error for a value with another type has this package's types, and the driver's text.
func TestWrongTypeHasTheTypesOfThisPackage(t *testing.T) {
	f := newFailing()
	c := open(t, f)
	of := &driver.WrongTypeError{Op: "acquire", Name: "n", Cause: errors.New("WRONGTYPE"), State: driver.State{
		Name: "n", Holding: 1, Holders: []driver.Holder{{Token: "a-secret-owner", Remaining: -1}},
		Foreign: &driver.Foreign{Key: "lock:n", Type: "hash", Kind: "Redisson RLock", Remaining: -1, Lock: true, Advice: "wait", Mark: 1},
	}}
	for what, failure := range map[string]error{"plain": of, "decorated": fmt.Errorf("primary: %w", of)} {
		f.failWith(failure)
		_, locked := c.Mutex("n").TryLock(t.Context())
		_, inspected := c.Inspect(t.Context(), "n")
		for verb, err := range map[string]error{"TryLock": locked, "Inspect": inspected} {
			var wrong *dibs.WrongTypeError
			if !errors.As(err, &wrong) || !errors.Is(err, dibs.ErrWrongType) || !errors.Is(err, of.Cause) {
				t.Errorf("%s, %s: %v", verb, what, err)
				continue
			}
			h, foreign := wrong.State.Holders[0], wrong.State.Foreign
			if h.Token != "a-secret-owner" || !h.Exclusive || !h.NeverExpires || h.Remaining != 0 {
				t.Errorf("%s, %s: holder %+v", verb, what, h)
			}
			if foreign.Key != "lock:n" || !foreign.Removable || !foreign.NeverExpires || foreign.Remaining != 0 || !foreign.Lock {
				t.Errorf("%s, %s: %+v", verb, what, foreign)
			}
			if err.Error() != failure.Error() || wrong.Error() != of.Error() {
				t.Errorf("%s, %s: %q, want the text %q", verb, what, err, failure)
			}
		}
	}
	f.failWith(nil)
}
