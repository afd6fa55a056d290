package dibs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// reconnecting returns a store whose subscription the test can restore.
func reconnecting() (f *faulty, s driver.Store, again func()) {
	f, s = newFaulty()
	var hear func(driver.Event)
	f.set(func(f *faulty) {
		f.event = func(e driver.Event, on func(driver.Event)) {
			hear = on
			on(e)
		}
	})
	return f, s, func() {
		hear(driver.Event{Kind: driver.EventDisconnected, Err: errReset})
		hear(driver.Event{Kind: driver.EventConnected})
	}
}

// A subscription that breaks repeatedly does not cause a renewal of all leases each time.
func TestReconnectsCauseNoRenewalStorm(t *testing.T) {
	for what, every := range map[string]time.Duration{
		"10 a second": 100 * time.Millisecond, "100 a second": 10 * time.Millisecond, "2 a second": 500 * time.Millisecond,
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const leases = 1000
				f, _, again := reconnecting()
				c := open(t, f)
				held := lockMany(t, c, leases)
				synctest.Wait()
				for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(every) {
					again()
				}
				_, renewals := f.extendCalls()
				// 6 would be sent without reconnects, 20 if the subscription breaks every
				// 3 s.
				if renewals > 26*leases {
					t.Errorf("%d renewals of each lease in a minute", renewals/leases)
				}
				if n := lost(held); n > 0 {
					t.Errorf("%d leases lost", n)
				}
			})
		})
	}
}

// The first reconnect detects at once which leases the store lost. A later reconnect does so within
// seconds, however many came before.
func TestLossIsDetectedOnEachReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s, again := reconnecting()
		c := open(t, f, dibs.TTL(time.Minute))
		detectedAfter := func() time.Duration {
			t.Helper()
			l := lock(t, c, "n")
			synctest.Wait()
			if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: string(l.Token())}); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			again()
			select {
			case <-l.Context().Done():
			case <-time.After(10 * time.Second):
				t.Fatal("loss not detected within 10s")
			}
			if err := context.Cause(l.Context()); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("cause %v", err)
			}
			_ = l.Unlock()
			return time.Since(begin)
		}
		for range 3 {
			time.Sleep(time.Minute)
			if d := detectedAfter(); d > 0 {
				t.Errorf("first reconnect after a pause: detected after %v", d)
			}
			if d := detectedAfter(); d > 250*time.Millisecond {
				t.Errorf("second reconnect: detected after %v", d)
			}
			if d := detectedAfter(); d > 500*time.Millisecond {
				t.Errorf("third reconnect: detected after %v", d)
			}
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				again()
			}
			if d := detectedAfter(); d > 4*time.Second {
				t.Errorf("after many reconnects: detected after %v", d)
			}
		}
	})
}
