package dibs

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/memstore"
)

// Contexts are removed in any order, once.
func TestDerivedContexts(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}} {
		var all derivedContexts
		contexts := []*derivedContext{{}, {}, {}}
		for _, c := range contexts {
			all.add(c)
		}
		for n, i := range order {
			for range 2 {
				all.remove(contexts[i])
				if left := count(all); left != len(order)-n-1 {
					t.Fatalf("order %v: %d left after %d were removed", order, left, n+1)
				}
			}
		}
	}
	var all derivedContexts
	one, two := new(derivedContext), new(derivedContext)
	all.add(one)
	all.add(two)
	if taken := all.removeAll(); len(taken) != 2 || count(all) != 0 {
		t.Errorf("%d of two taken, %d left", len(taken), count(all))
	}
	all.remove(one) // without effect
}

func count(all derivedContexts) (n int) {
	for c := all.first; c != nil; c = c.next {
		n++
	}
	return n
}

// A watchedContext calls a function when a value is read from it.
type watchedContext struct {
	context.Context
	read func()
}

func (c *watchedContext) Value(key any) any {
	if c.read != nil {
		c.read()
	}
	return c.Context.Value(key)
}

// No lock is held while a context ends, which calls methods on the user's context.
func TestContextsEndWithoutLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		entries := 0
		c, other := New(s, Observe(Hooks{AcquireEnd: func(context.Context, AcquireEnd) {
			if entries++; entries == 2 {
				time.Sleep(time.Minute) // until the lease is lost
			}
		}})), New(s)
		user := &watchedContext{Context: t.Context()}
		var reads atomic.Int64 // contexts end on their own goroutines as well
		err := c.Mutex("n").Do(user, func(ctx context.Context) error {
			go func() { _ = other.Mutex("n").Do(t.Context(), func(context.Context) error { return nil }) }()
			synctest.Wait()
			user.read = func() { reads.Add(1); _, _ = Fence(ctx) }
			lease, err := LeaseOf(ctx, "n")
			if err != nil {
				return err
			}
			return lease.Yield(ctx)
		}, MaxHold(time.Second))
		if !errors.Is(err, ErrLost) || reads.Load() == 0 {
			t.Errorf("error %v after %d reads of a value, want ErrLost after one or more", err, reads.Load())
		}
		_, _ = c.Close(), other.Close()
	})
}

// The lease refers to WithLease's context until its cancel, and not longer.
func TestWithLeaseIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memstore.New())
		defer c.Close()
		l, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Unlock()
		before := runtime.NumGoroutine()
		var cancels []context.CancelFunc
		for range 100 {
			_, cancel := WithLease(t.Context(), l)
			cancels = append(cancels, cancel)
		}
		if count := l.l.contexts.count(); count != 100 || runtime.NumGoroutine() != before {
			t.Errorf("%d contexts and %d goroutines more, want 100 and none", count, runtime.NumGoroutine()-before)
		}
		for _, cancel := range cancels {
			cancel()
			cancel()
		}
		if count := l.l.contexts.count(); count != 0 {
			t.Errorf("%d contexts after cancel, want none", count)
		}
	})
}

func (d *derivedContexts) count() (n int) {
	for derived := d.first; derived != nil; derived = derived.next {
		n++
	}
	return n
}
