package dibs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Very many leases' renewals wait for one another without failing: a sent call gets its whole time
// limit.
func TestRenewalsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const leases, each = 60 * 512, 25 * time.Millisecond
		f, good := newFaulty()
		c := open(t, f, dibs.Timeout(2*time.Second)) // 60 calls at once would need 1.5 s, and have 1 s each
		server := make(chan struct{}, 1)
		var mu sync.Mutex
		late := 0
		f.set(func(f *faulty) {
			f.extend = func(ctx context.Context, requests []driver.ExtendRequest) []error {
				select {
				case server <- struct{}{}:
					time.Sleep(each)
					<-server
					return good.Extend(ctx, requests)
				case <-ctx.Done():
				}
				mu.Lock()
				defer mu.Unlock()
				late++
				return repeated(&driver.UnavailableError{Op: "extend", Cause: ctx.Err()}, len(requests))
			}
		})
		held := lockNames(t, c, leases)
		time.Sleep(time.Minute)
		if n := countLost(held); n > 0 {
			t.Errorf("%d of %d leases are lost", n, leases)
		}
		mu.Lock()
		defer mu.Unlock()
		if late > 0 {
			t.Errorf("%d renewals were not answered in time", late)
		}
	})
}

// Renewals that never return cost no lease: others are sent while there is time.
func TestRenewalsThatNeverReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const batches, hung = 36, 4
		f, good := newFaulty()
		c := open(t, f)
		end := make(chan struct{})
		defer close(end)
		var mu sync.Mutex
		calls, stuck := 0, 0
		f.set(func(f *faulty) {
			f.extend = func(ctx context.Context, requests []driver.ExtendRequest) []error {
				mu.Lock()
				calls++
				hangs := calls <= hung
				if hangs {
					stuck += len(requests)
				}
				mu.Unlock()
				if hangs {
					<-end
					return repeated(errReset, len(requests))
				}
				return good.Extend(ctx, requests)
			}
		})
		held := lockNames(t, c, batches*512)
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if n := countLost(held); n > 0 || calls <= hung {
			t.Errorf("%d leases are lost after %d renewals, of which %d of %d leases hang", n, calls, hung, stuck)
		}
	})
}

func repeated(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func lockNames(t *testing.T, c *dibs.Client, n int) []*dibs.Lease {
	t.Helper()
	held := make([]*dibs.Lease, n)
	for i := range held {
		held[i] = lock(t, c, fmt.Sprint("n", i))
	}
	return held
}

func countLost(held []*dibs.Lease) (lost int) {
	for _, l := range held {
		if l.Err() != nil {
			lost++
		}
	}
	return lost
}
