//go:build linux

package goredisstore_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// permitUse is one acquisition and release of permits of a semaphore.
type permitUse struct {
	weight int
	called time.Duration
	joined time.Duration // queued, or zero
	ticket uint64        // zero if it never waited
	begun  time.Duration // time of the release before it, as far as that is known
	enter  time.Duration
	exit   time.Duration // Unlock returned
	fence  uint64
}

// Requests of different weights are served in the order of their tickets, so that large
// ones are not starved by small ones. Not parallel, because throughput matters.
func TestPermitsInOrder(t *testing.T) {
	const permits, claimants, heaviest, clients = 10, 200, 4, 4
	each := pick(6, 30)
	b := setUp(t)
	var unheard atomic.Int64 // times when a client lost its subscription
	hooks := dibs.Hooks{Degraded: func(d dibs.Degraded) {
		if d.Err != nil {
			unheard.Add(1)
		}
	}}
	var locks []*dibs.Client
	for range clients {
		locks = append(locks, b.newClient(b.server.Addr(), patient(), dibs.Observe(hooks)))
	}
	var (
		held, most, over atomic.Int64
		workers          sync.WaitGroup
	)
	uses := make([][]permitUse, claimants)
	ctx := deadline(t, 2*generous)
	b.begin()
	for i := range claimants {
		workers.Go(func() {
			s := locks[i%clients].Semaphore(job, permits)
			for range each {
				p := permitUse{weight: 1 + i/clients%heaviest, called: mono()}
				hooks := dibs.Hooks{
					Queued:     func(_ context.Context, w dibs.Queued) { p.joined, p.ticket = mono(), w.Ticket },
					AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) { p.begun = mono() - a.Handoff },
				}
				l, err := s.Acquire(ctx, p.weight, dibs.Observe(hooks))
				p.enter = mono()
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				n := held.Add(int64(p.weight))
				if n > permits {
					over.Add(1)
				}
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(rand.N(5 * time.Millisecond)) // work
				held.Add(int64(-p.weight))
				p.fence = l.Fence()
				if err := l.Unlock(); err != nil {
					t.Errorf("unlock: %v", err)
				}
				p.exit = mono()
				uses[i] = append(uses[i], p)
			}
		})
	}
	workers.Wait()
	late := b.late()
	all := slices.Concat(uses...)
	slices.SortFunc(all, func(x, y permitUse) int { return cmp.Compare(x.fence, y.fence) }) // the order of service
	t.Logf("FIGURE permits: %d uses, up to %d of %d held, %d times more (limit 0)", len(all), most.Load(), permits, over.Load())
	if over.Load() != 0 || len(all) != claimants*each {
		t.Errorf("%d times more than the limit, %d of %d served", over.Load(), len(all), claimants*each)
	}
	wrong, waited := outOfOrder(all)
	t.Logf("FIGURE permits: %d of %d waiters were served out of order (limit 0)", wrong, waited)
	if wrong != 0 { // a waiter that cannot be notified, or not in time, is passed over
		skipIfStalled(t, late, ttl/8)
	}
	if n := unheard.Load(); wrong != 0 && n > 0 {
		t.Skipf("SKIPPED: on a busy machine, clients lost their subscriptions %d times", n)
	}
	if wrong != 0 || waited == 0 {
		t.Errorf("%d of %d waiters out of order", wrong, waited)
	}
	var waits [heaviest + 1][]time.Duration
	for _, p := range all {
		waits[p.weight] = append(waits[p.weight], p.enter-p.called)
	}
	for w := 1; w <= heaviest; w++ {
		t.Logf("FIGURE permits: waits of weight %d: mean %v, longest %v", w, round(mean(waits[w])), round(longest(waits[w])))
	}
	// In FIFO order all waits are alike, because each worker is behind all the others. They
	// differ only at the end of the run.
	b.within("permits: longest wait of weight 4 (limit: 1.5 of weight 1)", longest(waits[heaviest]), 3*longest(waits[1])/2)
	idle := longestIdle(all, permits-heaviest+1)
	within(t, "permits: longest wait while permits are unused", idle, 10*time.Millisecond, late)
	b.wantNoKeys()
}

// outOfOrder counts the uses that were served before one that was queued earlier. The
// tickets decide; a use that never waited has none, and must not be served before one
// that was already queued when it called. Uses without a ticket that took 100 ms or more
// do not count: on a busy machine they may have waited without learning their ticket.
// inOrder is in the order of service.
func outOfOrder(inOrder []permitUse) (wrong, waited int) {
	const never = time.Duration(1<<63 - 1)
	const late = 100 * time.Millisecond
	ticket, joined := ^uint64(0), never // the earliest of those served later
	for _, p := range slices.Backward(inOrder) {
		if p.ticket > ticket || p.ticket == 0 && p.called > joined && p.enter-p.called < late {
			wrong++
		}
		if p.ticket != 0 {
			waited++
			ticket, joined = min(ticket, p.ticket), min(joined, p.joined)
		}
	}
	return wrong, waited
}

// longestIdle returns the longest time during which there was a waiter, but fewer than
// least permits were held, by the clients' clocks. FIFO order does not justify leaving
// permits unused that the first waiter could have.
func longestIdle(all []permitUse, least int) (worst time.Duration) {
	type change struct {
		at           time.Duration
		held, queued int
	}
	var changes []change
	for _, p := range all {
		changes = append(changes, change{p.begun, p.weight, 0}, change{p.exit, -p.weight, 0})
		if p.joined > 0 && p.begun > p.joined {
			changes = append(changes, change{p.joined, 0, 1}, change{p.begun, 0, -1})
		}
	}
	slices.SortStableFunc(changes, func(x, y change) int { return cmp.Compare(x.at, y.at) })
	held, queued := 0, 0
	since := time.Duration(-1)
	for _, c := range changes {
		if since >= 0 {
			worst = max(worst, c.at-since)
		}
		held, queued = held+c.held, queued+c.queued
		switch {
		case queued == 0 || held >= least:
			since = -1
		case since < 0:
			since = c.at
		}
	}
	return worst
}

// The permits of a holder that dies become free when its lease expires, while other
// leases are renewed.
func TestPermitHolderIsKilled(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	renewed := make(chan struct{}, 100)
	locks, rival := b.newClient(b.server.Addr(), renewals(renewed)), b.newClient(b.server.Addr())
	for i := range 2 {
		l := b.acquire(locks, "permits job 1 3")
		dead := b.spawn(childConfig{Role: "leases", TTL: ttl})
		dead.acquire("p", "permits job 2 3")
		if i > 0 {
			dead.expect("renewed")
		}
		waiter := b.enqueueFor(rival, "permits job 2 3")
		b.begin()
		killed := time.Now()
		dead.kill()
		for len(renewed) > 0 {
			<-renewed
		}
		e := b.awaitEntry(waiter)
		b.within("permit holder killed: next entry", e.at.Sub(killed), ttl+20*time.Millisecond)
		b.await("the other lease is renewed", renewed)
		if s := b.inspect(rival, job); s.Holding != 2 {
			t.Errorf("%+v, want 2 holders", s)
		}
		if _, err := rival.Semaphore(job, 3).TryAcquire(t.Context(), 1); err == nil {
			t.Error("acquired a fourth permit of three")
		}
		if err := context.Cause(l.Context()); err != nil {
			t.Errorf("the remaining lease: %v", err)
		}
		b.unlock(l)
		b.unlock(e.lease)
		b.wantNoKeys()
	}
}
