// Package sqldrill tests stores in SQL databases while something fails.
package sqldrill

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Load has workers of several clients lock one name until stop ends, and checks that there are never
// two holders and that fences grow. A failure of the store is no error. It returns how
// often the name was held.
func Load(t *testing.T, stop context.Context, open func() driver.Store) int64 {
	t.Helper()
	const clients, workers = 4, 4
	l := load{t: t, stop: stop}
	var group sync.WaitGroup
	for range clients {
		// No lease is lost, because the TTL is longer than the test.
		locks := dibs.New(open(), dibs.TTL(time.Minute), dibs.Timeout(10*time.Second))
		t.Cleanup(func() { _ = locks.Close() }) // leases whose release failed have gone
		for range workers {
			group.Go(func() { l.work(locks.Mutex("n")) })
		}
	}
	group.Wait()
	return l.held.Load()
}

type load struct {
	t      *testing.T
	stop   context.Context
	inside atomic.Int32
	held   atomic.Int64
	fence  atomic.Uint64 // the last one
}

func (l *load) work(m *dibs.Mutex) {
	for l.stop.Err() == nil {
		err := m.Do(l.stop, func(ctx context.Context) error {
			if l.inside.Add(1) != 1 {
				l.t.Error("two concurrent holders")
			}
			if f := dibs.Fence(ctx); f <= l.fence.Swap(f) {
				l.t.Error("a fence did not grow")
			}
			l.held.Add(1)
			l.inside.Add(-1)
			return nil
		})
		if err != nil && l.stop.Err() == nil && !errors.Is(err, dibs.ErrUnavailable) {
			l.t.Error(err)
		}
	}
}
