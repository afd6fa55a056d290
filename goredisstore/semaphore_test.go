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
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/redis/go-redis/v9"
)

// permitUse records how semaphore permits were acquired and released.
type permitUse struct {
	token      string
	weight     int
	called     time.Duration
	joined     time.Duration // queued, or zero
	begun      time.Duration // time of the release before it, if known
	enter      time.Duration
	exit       time.Duration // Unlock returned
	ticket     uint64        // zero if it never waited
	fence      uint64        // of the grant
	passedOver bool          // docs/guarantees.md lets younger waiters be served before it
}

// Requests with different weights are served in the order of their tickets, so that small
// requests do not starve large ones. Not parallel, because throughput matters.
func TestPermitsInOrder(t *testing.T) {
	const permits, claimants, heaviest, clients = 10, 200, 4, 4
	each := pick(6, 30)
	b := setUp(t)
	log := b.recordGrants()
	var locks []*dibs.Client
	var waiters []*history.Waiters // for each client
	for i := range clients {
		waiters = append(waiters, history.NewWaiters(goredisstore.New(dial(t, &redis.Options{Addr: b.server.Addr()}))))
		locks = append(locks, b.warmClient(waiters[i], patient(), dibs.TTL(generous))) // a stall loses no lease
	}
	var (
		held, most, over atomic.Int64
		workers          sync.WaitGroup
	)
	uses := make([][]permitUse, claimants)
	ctx := deadline(t, 10*generous)
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
				l, err := s.Permits(p.weight).Lock(ctx, dibs.Observe(hooks))
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
				p.token, p.fence = string(l.Token()), l.Fence()
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
	t.Logf("FIGURE permits: %d uses, up to %d of %d held, %d times more (limit 0)", len(all), most.Load(), permits, over.Load())
	if over.Load() != 0 || len(all) != claimants*each {
		t.Errorf("%d times more than the limit, %d of %d served", over.Load(), len(all), claimants*each)
	}
	byHandoff := log.grants()
	for i := range all {
		p := &all[i]
		if g, ok := byHandoff[p.token]; ok {
			p.fence, p.ticket = g.fence, g.ticket
		}
		p.passedOver = slices.ContainsFunc(waiters, func(w *history.Waiters) bool { return w.MayPassOver(p.token) })
	}
	b.wantInOrder(all, late)
	b.wantNoKeys()
	if late > ttl/4 {
		t.Logf("FIGURE permits: no limits of times, because the machine stalled for %v", late)
		return
	}
	var waits [heaviest + 1][]time.Duration
	for _, p := range all {
		waits[p.weight] = append(waits[p.weight], p.enter-p.called)
	}
	for w := 1; w <= heaviest; w++ {
		t.Logf("FIGURE permits: waits of weight %d: mean %v, longest %v", w, round(mean(waits[w])), round(longest(waits[w])))
	}
	// In FIFO order all waits are alike, because each worker is behind all the others. They differ
	// only at the end of the run.
	b.within("permits: longest wait of weight 4 (limit: 1.5 of weight 1)", longest(waits[heaviest]), 3*longest(waits[1])/2)
	idle := longestIdle(all, permits-heaviest+1)
	within(t, "permits: longest wait while permits are unused", idle, 10*time.Millisecond, late)
}

// wantInOrder checks that no waiter was granted its permits after a waiter with a larger ticket,
// nor after a call that never waited and began when the waiter was queued. Waiters are passed over
// only if the machine was late.
func (b *fixture) wantInOrder(uses []permitUse, late time.Duration) {
	b.t.Helper()
	slices.SortFunc(uses, func(x, y permitUse) int { return cmp.Compare(x.fence, y.fence) }) // the order of service
	var wrong, waited, passedOver int
	var ticket uint64        // the largest among those served before
	var called time.Duration // the last among those served before that never waited
	for _, p := range uses {
		if p.ticket == 0 {
			called = max(called, p.called)
			continue
		}
		waited++
		isOvertaken := p.ticket < ticket || p.joined != 0 && p.joined < called
		switch {
		case isOvertaken && p.passedOver:
			passedOver++
		case isOvertaken:
			wrong++
			b.t.Logf("overtaken: %+v", p)
		}
		ticket = max(ticket, p.ticket)
	}
	b.t.Logf("FIGURE permits: %d of %d waiters were served out of order (limit 0), and %d that were late or could not be notified", wrong, waited, passedOver)
	if late <= ttl/8 {
		wrong += passedOver
	}
	if wrong != 0 || waited == 0 {
		b.t.Errorf("%d of %d waiters out of order", wrong, waited)
	}
}

// longestIdle returns the longest time during which there was a waiter, but fewer than least
// permits were held, by the clients' clocks. FIFO order does not justify leaving permits unused
// that the first waiter could have.
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

// A dead holder's permits become free when its lease expires, while other leases are renewed.
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
		if _, err := rival.Semaphore(job, 3).Permits(1).TryLock(t.Context()); err == nil {
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
