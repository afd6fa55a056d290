package dibs_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// faulty is a store behind an unreliable network. Each fault, if set, replaces an operation. It
// receives the call and may forward it late, twice or never.
type faulty struct {
	*driver.Full

	mu      sync.Mutex
	acquire func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error)
	release func(ctx context.Context, r driver.ReleaseRequest) (bool, error)
	cancel  func(ctx context.Context, r driver.AcquireRequest) error
	extend  func(ctx context.Context, requests []driver.ExtendRequest) []error
	resize  func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error)
	inspect func(ctx context.Context, name string) (driver.State, error) // for one name or many
	notify  func(ctx context.Context, r driver.WantedRequest) (bool, error)
	event   func(e driver.Event, on func(driver.Event))
	watch   func(ctx context.Context) error

	acquires, extends, extended, notifies int
	inspects                              int // calls to InspectAll
}

// newFaulty returns a faulty store without faults, and the reliable store behind it.
func newFaulty() (*faulty, driver.Store) {
	s := memstore.New()
	return &faulty{Full: driver.Complete(s)}, s
}

func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// extendCalls returns how often Extend was called, and for how many leases in total.
func (f *faulty) extendCalls() (calls, leases int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.extends, f.extended
}

func (f *faulty) heal() {
	f.set(func(f *faulty) {
		f.acquire, f.release, f.cancel, f.extend, f.event, f.watch = nil, nil, nil, nil, nil, nil
		f.resize, f.inspect, f.notify = nil, nil, nil
	})
}

// hangAll makes all operations but Watch hang until their context or time limit ends.
func (f *faulty) hangAll() {
	f.set(func(f *faulty) {
		f.acquire = func(ctx context.Context, request driver.AcquireRequest) (driver.AcquireReply, error) {
			return driver.AcquireReply{}, hang(ctx, request.Until)
		}
		f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) { return false, hang(ctx, r.Until) }
		f.cancel = func(ctx context.Context, request driver.AcquireRequest) error { return hang(ctx, request.Until) }
		f.extend = func(ctx context.Context, requests []driver.ExtendRequest) []error {
			errs := make([]error, len(requests))
			err := hang(ctx, time.Time{})
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
		f.resize = func(ctx context.Context, request driver.AcquireRequest) (driver.AcquireReply, error) {
			return driver.AcquireReply{}, hang(ctx, request.Until)
		}
		f.inspect = func(ctx context.Context, _ string) (driver.State, error) {
			return driver.State{}, hang(ctx, time.Time{})
		}
		f.notify = func(ctx context.Context, _ driver.WantedRequest) (bool, error) { return false, hang(ctx, time.Time{}) }
	})
}

func hang(ctx context.Context, until time.Time) error {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	<-ctx.Done()
	return &driver.UnavailableError{Op: "test", Cause: ctx.Err()}
}

var errReset = &driver.UnavailableError{Op: "test", Cause: context.DeadlineExceeded}

func (f *faulty) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	f.mu.Lock()
	f.acquires++
	fault := f.acquire
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, r)
	}
	return f.Store.Acquire(ctx, r)
}

func (f *faulty) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	f.mu.Lock()
	fault := f.release
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, r)
	}
	return f.Store.Release(ctx, r)
}

func (f *faulty) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	f.mu.Lock()
	fault := f.cancel
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, r)
	}
	return f.Store.Cancel(ctx, r)
}

func (f *faulty) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	f.mu.Lock()
	f.extends++
	f.extended += len(requests)
	fault := f.extend
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, requests)
	}
	return f.Store.Extend(ctx, requests)
}

func (f *faulty) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	f.mu.Lock()
	fault := f.resize
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, r)
	}
	return f.Full.Resize(ctx, r)
}

func (f *faulty) Inspect(ctx context.Context, name string) (driver.State, error) {
	f.mu.Lock()
	fault := f.inspect
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, name)
	}
	return f.Full.Inspect(ctx, name)
}

// InspectAll inspects the names separately if a fault is set.
func (f *faulty) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	f.mu.Lock()
	f.inspects++
	fault := f.inspect
	f.mu.Unlock()
	if fault == nil {
		return f.Full.InspectAll(ctx, names)
	}
	states := make([]driver.State, len(names))
	for i, name := range names {
		var err error
		if states[i], err = fault(ctx, name); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func (f *faulty) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	f.mu.Lock()
	f.notifies++
	fault := f.notify
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, r)
	}
	return f.Full.NotifyWanted(ctx, r)
}

func (f *faulty) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	f.mu.Lock()
	fault := f.watch
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx)
	}
	return f.Store.Watch(ctx, client, busy, func(e driver.Event) {
		f.mu.Lock()
		fault := f.event
		f.mu.Unlock()
		if fault != nil {
			fault(e, on)
			return
		}
		on(e)
	})
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// open returns a client closed at the test's end.
func open(t *testing.T, s driver.Store, options ...dibs.Option) *dibs.Client {
	c := dibs.New(s, options...)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func lock(t *testing.T, c *dibs.Client, name string, options ...dibs.Option) *dibs.Lease {
	t.Helper()
	l, err := c.Mutex(name).Lock(t.Context(), options...)
	if err != nil {
		t.Fatalf("lock %q: %v", name, err)
	}
	return l
}
