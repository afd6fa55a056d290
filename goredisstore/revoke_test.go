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

// An operator breaks what hangs in another process, and goes on renewing: its
// context ends by one push, and the next in line holds then too. Not parallel: it is
// about single ms.
func TestBreak(t *testing.T) {
	const longTTL = 20 * time.Second // no expiry plays a part
	for _, what := range []struct {
		name, holds, waits string
		trips              int // until the next in line holds: a set is told, and asks
	}{
		{"a mutex", "lock job", "lock job", 1},
		{"a writer", "write job", "read job", 1},
		{"a reader", "read job", "write job", 1},
		{"permits", "permits job 2 3", "permits job 3 3", 1},
		{"a set", "all job other", "all job more", 2},
		{"a leader", "lead job", "lead job", 1},
	} {
		t.Run(what.name, func(t *testing.T) {
			b := setUp(t)
			addr, roundTrip := b.delayedProxy()
			operator, rival := b.newClient(addr, dibs.TTL(longTTL)), b.newClient(addr, dibs.TTL(longTTL))
			b.warm(rival)
			var told, entries, trips []time.Duration
			holder := b.spawn(childConfig{Role: "leases", Addr: addr, TTL: time.Second})
			var ours []time.Duration
			var lates []time.Duration // of the control: like is compared with like
			for i := range 5 {
				b.begin()
				held := holder.acquire("h", what.holds)
				if i < 1 {
					holder.expect("renewed") // the others are broken when they are young
				}
				waiter := b.enqueueFor(rival, what.waits)
				trips = append(trips, roundTrip())
				before := b.late()
				b.begin()
				begun := mono()
				broke, err := operator.Revoke(t.Context(), job, held.fence)
				ours = append(ours, mono()-begun)
				if err != nil || !broke {
					skipIfStalled(t, max(before, b.late()), time.Second/4) // it may have been lost for that
					t.Fatalf("break of fence %d, %v after it was taken (control %v): %t, %v; %+v",
						held.fence, begun-held.at, max(before, b.late()), broke, err, b.inspect(rival, job))
				}
				e := b.awaitEntry(waiter)
				f := holder.expect("told")
				lates = append(lates, b.late())
				if f[2] != string(dibs.ReasonRevoked) {
					t.Errorf("the holder is told %q, want %q", f[2], dibs.ReasonRevoked)
				}
				told = append(told, number(t, f[1])-begun)
				entries = append(entries, monoOf(e.at)-begun)
				if e.lease.Fence() <= held.fence {
					t.Errorf("fence %d after %d", e.lease.Fence(), held.fence)
				}
				// The old fence does not hurt who has it now.
				if broke, err := operator.Revoke(t.Context(), job, held.fence); broke || err != nil {
					b.skipIfStalled(time.Second / 4) // it may have had to ask twice
					t.Errorf("break of the old fence: %t, %v (control %v)", broke, err, b.late())
				}
				holder.send("free h")
				holder.expect("freed")
				if s := b.inspect(operator, job); s.Holding != 1 || s.Holders[0].Token != e.lease.Token() {
					t.Errorf("%+v, want %s to hold", s, e.lease.Token())
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
			t.Logf("FIGURE break of %s: a round trip is %v; medians: holder told after %v (limit 1.5 of it: %v), next enters after %v (limit %v), Break took %v; control %v",
				what.name, round(trip), round(median(told)), round(limit), round(median(entries)), round(next), round(median(ours)), round(late))
			// One trip more would show in the best round, too; a busy machine need not.
			if best, soonest := slices.Min(told), slices.Min(entries); best > limit+late || soonest > next+late {
				t.Errorf("told after %v, next after %v at best, want at most %v and %v (control %v)", best, soonest, limit, next, late)
			}
		})
	}
}

// monoOf tells a time of this process on the clock of all.
func monoOf(at time.Time) time.Duration { return mono() - time.Since(at) }

// One of several that hold in parts is broken, and the others are not.
func TestBreakOneOfMany(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	operator, locks := b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
	other := b.spawn(childConfig{Role: "leases", TTL: ttl})
	for _, what := range []string{"read job", "permits job 1 3"} {
		first, second := b.acquire(locks, what), b.acquire(locks, what)
		theirs := other.acquire("o", what)
		for _, l := range []*dibs.Lease{second, first} {
			if broke, err := operator.Revoke(t.Context(), job, l.Fence()); err != nil || !broke {
				t.Fatalf("%s: break: %t, %v", what, broke, err)
			}
			b.await("the holder is told", l.Context().Done())
			var lost *dibs.LostError
			if !errors.As(context.Cause(l.Context()), &lost) || lost.Reason != dibs.ReasonRevoked {
				t.Errorf("%s: %v, want it revoked", what, context.Cause(l.Context()))
			}
			if l == second {
				if err := first.Err(); err != nil {
					t.Errorf("%s: another one: %v", what, err)
				}
			}
			b.wantErr(l.Unlock(), dibs.ErrLost)
		}
		if s := b.inspect(operator, job); s.Holding != 1 || s.Holders[0].Fence != theirs.fence {
			t.Errorf("%s: %+v, want one with fence %d", what, s, theirs.fence)
		}
		// The one that is left renews, and its neighbours' ends take nothing from it.
		other.expect("renewed")
		if s := b.inspect(operator, job); s.Holding != 1 {
			t.Errorf("%s: %+v, want one", what, s)
		}
		other.send("free o")
		other.expect("freed")
		b.wantNoKeys()
	}
}

// What is broken while its holder stands still is lost for it when it goes on, and a
// holder that is cut off hears of it when it is back.
func TestBreakOfOneThatIsStopped(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	operator := b.newClient(b.server.Addr())
	holder := b.spawn(childConfig{Role: "leases", TTL: 20 * time.Second})
	held := holder.acquire("h", "lock job")
	holder.stop()
	waiter := b.enqueueFor(operator, "lock job")
	b.begin()
	start := time.Now()
	if broke, err := operator.Revoke(t.Context(), job, held.fence); err != nil || !broke {
		t.Fatalf("break: %t, %v", broke, err)
	}
	e := b.awaitEntry(waiter)
	b.within("break of one that is stopped: next entry", e.at.Sub(start), 50*time.Millisecond)
	woken := mono()
	holder.cont()
	f := holder.expect("told")
	b.within("break of one that is stopped: told after it goes on", number(t, f[1])-woken, 100*time.Millisecond)
	if !strings.HasPrefix(f[2], string(dibs.ReasonRevoked)) {
		t.Errorf("told %q", f)
	}
	holder.send("free h")
	holder.expect("freed")
	if err := e.lease.Err(); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	b.unlock(e.lease)
	b.wantNoKeys()
}
