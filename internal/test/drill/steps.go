package drill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Generous is a timeout for unmeasured operations on a busy machine.
const Generous = 30 * time.Second

// Lock locks a name, or ends the test.
func Lock(t *testing.T, c *dibs.Client, name string, options ...dibs.Option) *dibs.Lease {
	t.Helper()
	l, err := c.Mutex(name).Lock(Within(t, Generous), options...)
	if err != nil {
		t.Fatalf("lock %q: %v", name, err)
	}
	return l
}

// Obtain acquires a free lock, and retries while the store is unavailable.
func Obtain(t *testing.T, lock func(context.Context) (*dibs.Lease, error)) *dibs.Lease {
	t.Helper()
	ctx := Within(t, Generous)
	for {
		l, err := lock(ctx)
		if err == nil {
			return l
		}
		if !errors.Is(err, dibs.ErrUnavailable) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// Unlock unlocks a lease, or ends the test.
func Unlock(t *testing.T, l *dibs.Lease) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Fatalf("unlock %q: %v", l.Name(), err)
	}
}

// Within returns a context ending after d.
func Within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until holds returns true.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Generous); !holds(); time.Sleep(time.Millisecond) { // polls
		if time.Now().After(end) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// Watch returns a store's events for a client until the test ends.
func Watch(t *testing.T, s driver.Store) <-chan driver.Event {
	t.Helper()
	events := make(chan driver.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { _ = s.Watch(ctx, "host:1:test", nil, func(e driver.Event) { events <- e }) })
	t.Cleanup(func() {
		const soon = 500 * time.Millisecond
		measured, over := context.WithCancel(context.Background())
		defer over()
		machine := WatchMachine(measured, noServer)
		start := time.Now()
		cancel()
		watching.Wait()
		if took, late := time.Since(start), machine.Late(); took > soon+late {
			t.Errorf("Watch ended %v after its context (control %v)", took, late)
		}
	})
	return events
}

// WantEvent checks the next event and its time.
func WantEvent(t *testing.T, events <-chan driver.Event, kind driver.EventKind, within time.Duration) {
	t.Helper()
	select {
	case e := <-events:
		if e.Kind != kind {
			t.Fatalf("event %+v, want %v", e, kind)
		}
	case <-time.After(within):
		t.Fatalf("no event %v within %v", kind, within)
	}
}

func median(of []time.Duration) time.Duration { return slices.Sorted(slices.Values(of))[len(of)/2] }
