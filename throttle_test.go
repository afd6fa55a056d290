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

// reconnecting returns a store whose subscription can be made to come back.
func reconnecting() (f *faulty, s driver.Store, again func()) {
	f, s = broken()
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

// A subscription that breaks again and again does not make all leases be renewed each
// time.
func TestReconnectionsAreNoStorm(t *testing.T) {
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
				_, renewals := f.asked()
				// 6 would be sent anyway, 20 when it breaks every 3 s.
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

// The first reconnection tells at once what the store has forgotten, and a later one
// within seconds, however many came before.
func TestLossIsToldOnEachReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s, again := reconnecting()
		c := open(t, f, dibs.TTL(time.Minute))
		told := func() time.Duration {
			t.Helper()
			l := lock(t, c, "n")
			synctest.Wait()
			if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: l.Token()}); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			again()
			select {
			case <-l.Context().Done():
			case <-time.After(10 * time.Second):
				t.Fatal("not told within 10s")
			}
			if err := context.Cause(l.Context()); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("cause %v", err)
			}
			_ = l.Unlock()
			return time.Since(begin)
		}
		for range 3 {
			time.Sleep(time.Minute)
			if d := told(); d > 0 {
				t.Errorf("the first reconnection after a while told it after %v", d)
			}
			if d := told(); d > 250*time.Millisecond {
				t.Errorf("the next one told it after %v", d)
			}
			if d := told(); d > 500*time.Millisecond {
				t.Errorf("the third one told it after %v", d)
			}
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				again()
			}
			if d := told(); d > 4*time.Second {
				t.Errorf("after many it was told after %v", d)
			}
		}
	})
}
