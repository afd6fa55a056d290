package memstore_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/storetest"
)

func TestStore(t *testing.T) {
	storetest.RunSynctest(t, func(*testing.T) driver.Store { return memstore.New() })
	storetest.RunTicketsSynctest(t, func(*testing.T) driver.Store { return memstore.New() })
}

func TestVotes(t *testing.T) {
	storetest.RunVotesSynctest(t, func(*testing.T) driver.Voter { return memstore.New() })
}

// A node that may have lost its data votes for nobody but the name's holder.
func TestHolderInTheRecoveryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		s.LoseData()
		vote := func(name, token string, window time.Duration) (driver.AcquireReply, error) {
			return s.Acquire(t.Context(), driver.AcquireRequest{
				Name: name, Token: token, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1,
				Vote: &driver.Vote{Ticket: 16, Fence: 1, RecoveryWindow: window},
			})
		}
		first, err := vote("n", "t", 0)
		if err != nil || !first.Held {
			t.Fatal(first, err)
		}
		if again, err := vote("n", "t", time.Hour); err != nil || !again.Held || again.Fence <= first.Fence {
			t.Errorf("holder: %+v, %v; want the lease with a fence after %d", again, err, first.Fence)
		}
		for _, of := range []struct{ name, token string }{{"n", "other"}, {"m", "t"}} {
			var young *driver.RecoveringError
			if reply, err := vote(of.name, of.token, time.Hour); reply.Held || !errors.As(err, &young) || young.Remaining != time.Hour {
				t.Errorf("%+v: %+v, %v; want RecoveringError", of, reply, err)
			}
		}
	})
}

// A lease with the longest TTL must not expire, whichever request set it.
func TestLongestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		time.Sleep(time.Hour)
		request := func(token string, ttl time.Duration) driver.AcquireRequest {
			return driver.AcquireRequest{Name: "n", Token: token, Client: "c", TTL: ttl, Weight: 1, Limit: 2}
		}
		for what, longest := range map[string]func() error{
			"acquire": func() error {
				_, err := s.Acquire(t.Context(), request("a", math.MaxInt64))
				return err
			},
			"extend": func() error {
				return s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: "a", TTL: math.MaxInt64}})[0]
			},
			"resize": func() error {
				r := request("a", math.MaxInt64)
				r.Weight = 2
				_, err := s.Resize(t.Context(), r)
				return err
			},
			"reserve": func() error {
				_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "a", Reserve: math.MaxInt64})
				return err
			},
		} {
			if _, err := s.Acquire(t.Context(), request("a", time.Minute)); err != nil {
				t.Fatal(err)
			}
			if err := longest(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			time.Sleep(365 * 24 * time.Hour)
			if state, err := s.Inspect(t.Context(), "n"); err != nil || state.Holding != 1 {
				t.Errorf("%s: %+v, %v; want one holder", what, state, err)
			}
			for _, unreserve := range []bool{false, true} {
				if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "a", Unreserve: unreserve}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
