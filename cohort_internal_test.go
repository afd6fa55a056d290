package dibs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/memstore"
)

// A store lease that has expired is not passed on, even if the scheduler has not ended it so
// far, as after a process was stopped.
func TestCohortExpiredUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memstore.New(), Cohort(8, time.Second))
		defer c.Close()
		lock := func() *Lease {
			l, err := c.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		first := lock()
		store := first.h.storeLease()
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until its fences are there, which extends the lease
		store.mu.Lock()
		store.deadline = c.clock.now()
		store.mu.Unlock()
		second := lock()
		if second.h.storeLease() == store || second.Err() != nil {
			t.Error("a call got a lease that had expired")
		}
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A call whose context ends in the moment in which it is granted the lock gets its lease.
func TestCohortGrantAndEndOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memstore.New(), Cohort(8, 0))
		defer c.Close()
		first, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var second *Lease
		go func() { second, err = c.Mutex("n").Lock(ctx) }()
		synctest.Wait()
		co := first.h.cohortLink().cohort
		co.mu.Lock() // so that the call learns of both together
		cancel()
		co.holder = nil
		release := co.advance(c.clock.now())
		co.mu.Unlock()
		synctest.Wait()
		if release != nil || err != nil || second == nil {
			t.Fatalf("release %v, lease %v, error %v", release, second, err)
		}
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// The record of the fence lives for as long as the TTL says with which it was made.
func TestCohortRecordsAfterANewTTL(t *testing.T) {
	h := &lease{leaseState: *newState(second)}
	if h.isRecorded(0, second) {
		t.Fatal("the fence is recorded before the first renewal")
	}
	h.recordKept(0, second, false)
	if !h.isRecorded(second/3, second) {
		t.Fatal("the fence is not recorded")
	}
	h.setTTL(0, 30*second)
	if h.isRecorded(second/3, 30*second) {
		t.Error("with another TTL, the fence is not recorded again")
	}
}
