package cohort

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// MaxHold ended a lease, and its holder unlocks before the cohort notices. The store lease should
// be released, and not passed to the next call.
func TestCohortUnlockDuringTheEndOfMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(memstore.New())
		defer func() {
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
		}()
		c := New(locks.Mutex("n"), Passes(100))
		first, err := c.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		group.Go(func() {
			second, err := c.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if second.tenure == first.tenure {
				t.Error("both have one store lease")
			}
			time.Sleep(time.Minute) // virtual
			if err := second.Unlock(); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // the second call waits
		first.end(&dibs.LostError{Name: "n", Reason: dibs.ReasonMaxHold})
		if err := first.Unlock(); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		c.mu.Lock()
		if q := c.holder; q != nil && q.lease.tenure == first.tenure {
			t.Error("the store lease was passed on")
		}
		c.mu.Unlock()
		c.endedItself(first.call)
		group.Wait()
	})
}

// A hook that ends a release's goroutine must not stop the cohort.
func TestCohortReleasedHookEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(memstore.New())
		defer func() {
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
		}()
		var once sync.Once
		hooks := dibs.Hooks{Released: func(context.Context, dibs.Released) { once.Do(runtime.Goexit) }}
		c := New(locks.Mutex("n", dibs.Observe(hooks)), Passes(100))
		for i := range 3 {
			l, err := c.Lock(t.Context())
			if err != nil {
				t.Fatalf("lock %d: %v", i, err)
			}
			if err := l.Unlock(); (err != nil) != (i == 0) {
				t.Errorf("unlock %d: %v", i, err)
			}
		}
	})
}
