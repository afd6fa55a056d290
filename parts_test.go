package dibs

import (
	"testing"
	"testing/synctest"
	"time"

	leasestate "github.com/dibslock/dibs/internal/lease"
)

// A group of names lost during the others' acquire is removed from the client: cancel releases all.
func TestNothingRemainsOfALostPart(t *testing.T) {
	for _, lost := range []string{"first", "second", "both"} {
		t.Run(lost, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(alwaysGrants{})
				set := defaults()
				set.token = "token"
				acquire := func(names ...string) *lease {
					l, err := c.acquire(t.Context(), all([][]string{names}), set.tryOnce())
					if err != nil {
						t.Fatal(err)
					}
					return l.l
				}
				first, second := acquire("a", "b"), acquire("c", "d")
				if lost != "second" {
					_ = first.lose(leasestate.End{Reason: leasestate.Missing, Name: "b"})
				}
				if lost != "first" {
					_ = second.lose(leasestate.End{Reason: leasestate.Revoked, Name: "c"})
				}
				if err := first.merge(second); err == nil {
					t.Error("a lost group was reported as held")
				}
				first.cancel()
				synctest.Wait()
				if n := len(c.partlyLost.leases); n > 0 {
					t.Errorf("%d leases kept until Close", n)
				}
				if n := first.state.More(); n != 3 {
					t.Errorf("%d further names released, want 3", n)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A group of names merged into another group is not scheduled again, also if a renewal was in
// progress.
func TestMergedLeaseIsNotScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(alwaysGrants{})
		c.started.Store(true) // no scheduler
		set := defaults()
		set.token = "token"
		var leases []*lease
		for _, name := range []string{"a", "b"} {
			l, err := c.acquire(t.Context(), all([][]string{{name}}), set.tryOnce())
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l.l)
		}
		first, second := leases[0], leases[1]
		second.LockState().Times.Send()
		if !second.Commit() {
			t.Fatal("not held")
		}
		if err := first.merge(second); err != nil {
			t.Fatal(err)
		}
		second.LockState().RecordRenewal(c.clock.Now(), c.clock.Now(), time.Minute, 2, nil, 0)
		if second.Commit() {
			t.Error("the merged lease is held")
		}
		if all := c.renewals.All(); len(all) != 1 || all[0] != first {
			t.Errorf("%d leases are scheduled, want the first", len(all))
		}
	})
}
