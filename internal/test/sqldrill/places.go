package sqldrill

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// StallTimeout is the clients' timeout when the store stalls: shorter than the stall, so requests
// fail meanwhile.
const StallTimeout = 3 * time.Second

// KeepsPlaces lets waiters queue for a name, each with its own store, and causes a fault while the
// name is held. Waiters should be served in order. The timeout is for each request.
func KeepsPlaces(t *testing.T, name string, timeout time.Duration, open func() driver.Store, fault func()) {
	t.Helper()
	const waiters = 8
	newClient := func(options ...dibs.Option) *dibs.Client {
		c := dibs.New(open(), append(options, dibs.Timeout(timeout))...)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	holder, err := newClient().Mutex(name).Lock(t.Context(), dibs.TTL(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var served []int
	var running sync.WaitGroup
	for i := range waiters {
		queued := make(chan struct{}, 1)
		hooks := dibs.Hooks{Queued: func(context.Context, dibs.Queued) { queued <- struct{}{} }}
		running.Go(func() {
			err := newClient(dibs.Observe(hooks)).Mutex(name).Do(t.Context(), func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				served = append(served, i)
				return nil
			})
			if err != nil {
				t.Error(err)
				queued <- struct{}{}
			}
		})
		<-queued
	}
	fault()
	if err := holder.Unlock(); err != nil {
		t.Log("unlock:", err) // the clock may have ended the lease
	}
	running.Wait()
	if !slices.IsSorted(served) || len(served) != waiters {
		t.Errorf("served in the order %d", served)
	}
}
