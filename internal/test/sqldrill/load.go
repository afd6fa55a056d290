package sqldrill

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
)

// A Drill locks names while something fails. There must never be two holders, fences must grow, and in
// the end nothing must be left.
type Drill struct {
	Names  []string                           // locked together
	Open   func() driver.Store                // returns another client's store
	Direct driver.Store                       // a store whose requests arrive
	Faults func(stop context.Context) (n int) // injects faults until stop ends, heals them, and counts them
	Time   time.Duration
}

// Run runs a drill, longer on a busy machine. It fails the test if the names were never held, or if
// nothing failed. An operation may fail, because the store was unavailable.
func (d Drill) Run(t *testing.T) {
	t.Helper()
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := load{t: t, stop: stop, names: d.Names}
	var faults int
	var group sync.WaitGroup
	group.Go(func() {
		defer cancel()
		l.awaitHolds(d.Time)
	})
	group.Go(func() { faults = d.Faults(stop) })
	clients := l.start(&group, d.Open)
	group.Wait()
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for _, name := range d.Names {
		wantFree(t, d.Direct, name)
	}
	if l.held.Load() == 0 || faults == 0 {
		t.Error("the drill proves nothing")
	}
	t.Logf("held %d times, %d operations failed, %d faults", l.held.Load(), l.failed.Load(), faults)
}

// RunHeld runs a drill while another lease is held, which must not be lost.
func (d Drill) RunHeld(t *testing.T) {
	t.Helper()
	held, err := dibs.New(d.Direct, dibs.Timeout(10*time.Second)).Mutex("held").Lock(t.Context(), dibs.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	d.Run(t)
	if err := held.Unlock(); err != nil {
		t.Errorf("the lease that was held all the time: %v", err)
	}
}

// awaitHolds waits for a time, and until the names have often been held.
func (l *load) awaitHolds(least time.Duration) {
	const often = 30
	pause(l.stop, least)
	for end := time.Now().Add(10 * least); l.held.Load() < often && time.Now().Before(end); {
		pause(l.stop, 50*time.Millisecond) // between polls
	}
}

type load struct {
	t     *testing.T
	stop  context.Context
	names []string

	inside atomic.Int32
	held   atomic.Int64
	failed atomic.Int64
	fence  atomic.Uint64 // the last fence
}

func (l *load) start(group *sync.WaitGroup, open func() driver.Store) (clients []*dibs.Client) {
	const number, workers = 4, 4
	for range number {
		// No lease is lost, because the TTL is longer than the test.
		c := dibs.New(open(), dibs.TTL(time.Minute), dibs.Timeout(10*time.Second))
		clients = append(clients, c)
		for range workers {
			group.Go(func() { l.work(lockerOf(c, l.names)) })
		}
	}
	return clients
}

type locker interface {
	Do(ctx context.Context, fn func(ctx context.Context) error, options ...dibs.Option) error
}

func lockerOf(c *dibs.Client, names []string) locker {
	if len(names) == 1 {
		return c.Mutex(names[0])
	}
	return c.All(names)
}

func (l *load) work(m locker) {
	for l.stop.Err() == nil {
		err := m.Do(l.stop, func(ctx context.Context) error {
			fence := l.checkAlone(ctx)
			if rand.IntN(3) > 0 {
				return nil
			}
			if err := carried.Yield(ctx, l.names[0]); err != nil {
				return err
			}
			if carried.FenceOf(ctx, l.names[0]) > fence { // another request waited
				l.checkAlone(ctx)
			}
			return nil
		})
		switch {
		case err == nil || l.stop.Err() != nil:
		case errors.Is(err, dibs.ErrUnavailable):
			l.failed.Add(1)
		default:
			l.t.Error(err)
		}
	}
}

// checkAlone checks for other holders, and returns the fence.
func (l *load) checkAlone(ctx context.Context) (fence uint64) {
	if l.inside.Add(1) != 1 {
		l.t.Error("two concurrent holders")
	}
	fence = carried.FenceOf(ctx, l.names[0])
	if fence <= l.fence.Swap(fence) {
		l.t.Error("a fence did not grow")
	}
	l.held.Add(1)
	l.inside.Add(-1)
	return fence
}

// WantForgotten checks that a lease is lost, because the new server does not store it, and another
// lease is not.
func WantForgotten(t *testing.T, forgotten, kept *dibs.Lease) {
	t.Helper()
	<-forgotten.Context().Done()
	if err := context.Cause(forgotten.Context()); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("the forgotten lease ended with %v", err)
	}
	if err := kept.Unlock(); err != nil {
		t.Errorf("the lease that the new server had received: %v", err)
	}
}

// wantFree waits until nobody holds a name or waits for it.
func wantFree(t *testing.T, s driver.Store, name string) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for {
		state, err := driver.Complete(s).Inspect(limit, name)
		if err == nil && state.Holding == 0 && state.Waiting == 0 {
			return
		}
		if limit.Err() != nil {
			t.Errorf("%q stays in use: %+v, %v", name, state, err)
			return
		}
		pause(limit, 50*time.Millisecond) // between polls
	}
}

// pause waits for d, or until stop ends.
func pause(stop context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-stop.Done():
	}
}
