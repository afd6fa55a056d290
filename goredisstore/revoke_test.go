//go:build linux

package goredisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// An operator revokes another process's lease during its renewals. One notification must end its
// context, and the next waiter must hold the lock at the same time. Not parallel, because single
// ms matter.
func TestRevoke(t *testing.T) {
	const longTTL = 20 * time.Second // long enough not to expire
	for _, what := range []struct {
		name, holds, waits string
		trips              int // until the next waiter holds: a multi-lock is notified to retry
	}{
		{"a mutex", "lock job", "lock job", 1},
		{"a writer", "write job", "read job", 1},
		{"a reader", "read job", "write job", 1},
		{"permits", "permits job 2 3", "permits job 3 3", 1},
		{"a multi-lock", "all job other", "all job more", 2},
		{"a leader", "lead job", "lead job", 1},
	} {
		t.Run(what.name, func(t *testing.T) {
			b := setUp(t)
			addr, roundTrip := b.delayedProxy()
			operator, rival := b.newClient(addr, dibs.TTL(longTTL)), b.newClient(addr, dibs.TTL(longTTL))
			b.warm(rival)
			var notified, entries, trips []time.Duration
			holder := b.spawn(childConfig{Role: "leases", Addr: addr, TTL: time.Second})
			var calls []time.Duration
			var lates []time.Duration // for the control; its median is also compared
			for i := range 5 {
				b.begin()
				held := holder.acquire("h", what.holds)
				if i < 1 {
					holder.expect("renewed") // the others are revoked before their first renewal
				}
				waiter := b.enqueueFor(rival, what.waits)
				trips = append(trips, roundTrip())
				before := b.late()
				b.begin()
				begun := mono()
				revoked, err := operator.Revoke(t.Context(), job, dibs.Holder{Fence: held.fence}, "")
				calls = append(calls, mono()-begun)
				if err != nil || !revoked {
					skipIfStalled(t, max(before, b.late()), time.Second/4) // a stall may have lost the lease
					t.Fatalf("revoke of fence %d, %v after its grant (control %v): %t, %v; %+v",
						held.fence, begun-held.at, max(before, b.late()), revoked, err, b.inspect(rival, job))
				}
				e := b.awaitEntry(waiter)
				f := holder.expect("lost")
				lates = append(lates, b.late())
				if f[2] != string(dibs.ReasonRevoked) {
					t.Errorf("the holder got the reason %q, want %q", f[2], dibs.ReasonRevoked)
				}
				notified = append(notified, number(t, f[1])-begun)
				entries = append(entries, monoOf(e.at)-begun)
				if e.lease.Fence() <= held.fence {
					t.Errorf("fence %d after %d", e.lease.Fence(), held.fence)
				}
				// The old fence does not revoke the new lease.
				if revoked, err := operator.Revoke(t.Context(), job, dibs.Holder{Fence: held.fence}, ""); revoked || err != nil {
					b.skipIfStalled(time.Second / 4) // the request may have been retried
					t.Errorf("revoke of the old fence: %t, %v (control %v)", revoked, err, b.late())
				}
				holder.send("release h")
				holder.expect("released")
				if s := b.inspect(operator, job); s.Holding != 1 || s.Holders[0].Token != e.lease.Token() {
					t.Errorf("%+v, want the holder %s", s, e.lease.Token())
				}
				if err := e.lease.Err(); err != nil {
					t.Errorf("the next holder: %v", err)
				}
				b.unlock(e.lease)
				b.eventually("nothing is left", func() bool { return len(b.remainingKeys()) == 0 })
			}
			trip := median(trips)
			limit := trip * 3 / 2
			next := limit * time.Duration(what.trips)
			late := median(lates)
			t.Logf("FIGURE revoke of %s: round trip %v; medians: holder notified after %v (limit 1.5 round trips: %v), next enters after %v (limit %v), Revoke took %v; control %v",
				what.name, round(trip), round(median(notified)), round(limit), round(median(entries)), round(next), round(median(calls)), round(late))
			// An additional round trip would show even in the best round; a busy machine would
			// not.
			if best, soonest := slices.Min(notified), slices.Min(entries); best > limit+late || soonest > next+late {
				t.Errorf("holder notified after %v, next enters after %v at best, want at most %v and %v (control %v)", best, soonest, limit, next, late)
			}
		})
	}
}

// monoOf converts a time in this process to CLOCK_MONOTONIC.
func monoOf(at time.Time) time.Duration { return mono() - time.Since(at) }

// Revoking one of several shared leases must not affect the others.
func TestRevokeOneOfMany(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	operator, locks := b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
	other := b.spawn(childConfig{Role: "leases", TTL: ttl})
	for _, what := range []string{"read job", "permits job 1 3"} {
		first, second := b.acquire(locks, what), b.acquire(locks, what)
		theirs := other.acquire("o", what)
		for _, l := range []*dibs.Lease{second, first} {
			if revoked, err := operator.Revoke(t.Context(), job, dibs.Holder{Fence: l.Fence()}, ""); err != nil || !revoked {
				t.Fatalf("%s: revoke: %t, %v", what, revoked, err)
			}
			b.await("the holder is notified", l.Context().Done())
			var lost *dibs.LostError
			if !errors.As(context.Cause(l.Context()), &lost) || lost.Reason != dibs.ReasonRevoked {
				t.Errorf("%s: %v, want ReasonRevoked", what, context.Cause(l.Context()))
			}
			if l == second {
				if err := first.Err(); err != nil {
					t.Errorf("%s: the other lease: %v", what, err)
				}
			}
			b.wantErr(l.Unlock(), dibs.ErrLost)
		}
		if s := b.inspect(operator, job); s.Holding != 1 || s.Holders[0].Fence != theirs.fence {
			t.Errorf("%s: %+v, want one holder with fence %d", what, s, theirs.fence)
		}
		// The remaining lease is renewed, and the revoked ones have no effect on it.
		other.expect("renewed")
		if s := b.inspect(operator, job); s.Holding != 1 {
			t.Errorf("%s: %+v, want one holder", what, s)
		}
		other.send("release o")
		other.expect("released")
		b.wantNoKeys()
	}
}

// A holder that is stopped when its lease is revoked is notified when it continues.
func TestRevokeWhileStopped(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	operator := b.newClient(b.server.Addr())
	holder := b.spawn(childConfig{Role: "leases", TTL: 20 * time.Second})
	held := holder.acquire("h", "lock job")
	holder.stop()
	waiter := b.enqueueFor(operator, "lock job")
	b.begin()
	start := time.Now()
	if revoked, err := operator.Revoke(t.Context(), job, dibs.Holder{Fence: held.fence}, ""); err != nil || !revoked {
		t.Fatalf("revoke: %t, %v", revoked, err)
	}
	e := b.awaitEntry(waiter)
	b.within("revoke while stopped: next entry", e.at.Sub(start), 50*time.Millisecond)
	woken := mono()
	holder.cont()
	f := holder.expect("lost")
	b.within("revoke while stopped: notified after it continues", number(t, f[1])-woken, 100*time.Millisecond)
	if !strings.HasPrefix(f[2], string(dibs.ReasonRevoked)) {
		t.Errorf("reason %q, want revoked", f)
	}
	holder.send("release h")
	holder.expect("released")
	if err := e.lease.Err(); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	b.unlock(e.lease)
	b.wantNoKeys()
}
