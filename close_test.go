package dibs_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// Close's duration is bounded, however many leases there are and whatever the store does. (In the
// bubble, Close starts at one instant.)
func TestCloseIsBounded(t *testing.T) {
	slow := func(f *faulty, d time.Duration) func(context.Context, driver.ReleaseRequest) (bool, error) {
		return func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
			select {
			case <-time.After(d):
				return f.Store.Release(ctx, r)
			case <-ctx.Done():
				return false, hang(ctx, time.Time{})
			}
		}
	}
	for what, state := range map[string]struct {
		fault   func(f *faulty)
		within  time.Duration // for a 1s timeout
		returns bool          // all leases are released
	}{
		"well":     {func(*faulty) {}, 0, true},
		"far away": {func(f *faulty) { f.release = slow(f, 100*time.Millisecond) }, 2 * time.Second, true},
		"slow":     {func(f *faulty) { f.release = slow(f, 450*time.Millisecond) }, 2 * time.Second, true},
		"refusing": {func(f *faulty) {
			f.release = func(context.Context, driver.ReleaseRequest) (bool, error) {
				return false, &driver.UnavailableError{Op: "test", Cause: context.DeadlineExceeded, Refused: true}
			}
		}, 2 * time.Second, false},
		"unreachable": {func(f *faulty) {
			f.release = func(context.Context, driver.ReleaseRequest) (bool, error) { return false, errReset }
		}, 4 * time.Second, false},
		"hangs": {nil, 4 * time.Second, false},
		"hangs in part": {func(f *faulty) {
			f.release = func(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
				h := fnv.New32()
				_, _ = h.Write([]byte(r.Name))
				if h.Sum32()%3 == 0 {
					return false, hang(ctx, r.Until)
				}
				return f.Store.Release(ctx, r)
			}
		}, 4 * time.Second, false},
	} {
		for _, n := range []int{1, 1000, 2000} {
			if n > 1000 && what != "hangs" && what != "slow" {
				continue
			}
			t.Run(fmt.Sprint(what, "/", n), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f, s := newFaulty()
					c := dibs.New(f)
					lockMany(t, c, n-1)
					long := lock(t, c, "long", dibs.Timeout(time.Minute))
					if state.fault == nil {
						f.hangAll()
					} else {
						f.set(state.fault)
					}
					begin := time.Now()
					err := c.Close()
					if took := time.Since(begin); took > state.within {
						t.Errorf("Close took %v, want %v at most", took, state.within)
					}
					wantLost(t, long.Err(), dibs.ReasonClosed)
					if what == "hangs in part" {
						return
					}
					if state.returns {
						wantErr(t, err)
						if left, err := driver.Complete(s).List(t.Context(), "*"); err != nil || len(left) > 0 {
							t.Errorf("%d names are left, %v", len(left), err)
						}
						return
					}
					wantErr(t, err, dibs.ErrUnavailable)
					if want := fmt.Sprintf("%d of %d leases", n, n); !strings.Contains(err.Error(), want) {
						t.Errorf("error %v, want %q in it", err, want)
					}
				}) // the bubble fails if a goroutine is left
			})
		}
	}
}

// Close also limits an Unlock in progress.
func TestCloseBoundsAnUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := dibs.New(f)
		l := lock(t, c, "n", dibs.Timeout(time.Hour))
		f.hangAll()
		go func() { _ = l.Unlock() }()
		synctest.Wait()
		begin := time.Now()
		wantErr(t, c.Close())
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// A lock granted while Close is in progress belongs to nobody, so it is cancelled.
func TestCloseCancelsALateGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				defer time.Sleep(100 * time.Millisecond)
				return s.Acquire(ctx, c)
			}
		})
		c := dibs.New(f)
		acquired := make(chan error)
		go func() { acquired <- errorOf(c.Mutex("n").TryLock(t.Context())) }()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		wantErr(t, <-acquired, dibs.ErrClosed)
		wantErr(t, <-closed)
		wantNothing(t, s, "n")
	})
}

// Close releases a client's leases with a time limit longer than any process lives.
func TestCloseWithLongestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, timeout := range []time.Duration{58 * 365 * 24 * time.Hour, 59 * 365 * 24 * time.Hour, math.MaxInt64} {
			s := memstore.New()
			c := dibs.New(s, dibs.Timeout(timeout))
			lock(t, c, "n")
			wantErr(t, c.Close())
			unlock(t, mutex(t, s, "n"))
		}
	})
}

// A lease's calls during its client's Close use the same state as Close. The race detector judges.
func TestCloseWhileLeasesAreInUse(t *testing.T) {
	calls := map[string]func(c *dibs.Client, lease *dibs.Lease){
		"TryUpgrade": func(c *dibs.Client, lease *dibs.Lease) { _ = lease.TryUpgrade(t.Context()) },
		"Wanted":     func(_ *dibs.Client, lease *dibs.Lease) { lease.Wanted() },
		"Extend":     func(_ *dibs.Client, lease *dibs.Lease) { _ = lease.Extend(t.Context(), time.Hour) },
		"Deadline":   func(_ *dibs.Client, lease *dibs.Lease) { lease.Deadline() },
		"Context":    func(_ *dibs.Client, lease *dibs.Lease) { lease.Context() },
		"Unlock":     func(_ *dibs.Client, lease *dibs.Lease) { _ = lease.Unlock() },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				c := dibs.New(memstore.New())
				lease, err := c.RWMutex("name").Reader().Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var group sync.WaitGroup
				group.Go(func() { call(c, lease) })
				group.Go(func() { _ = c.Close() })
				group.Wait()
			}
		})
	}
}
