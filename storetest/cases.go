package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

func exclusion(t *testing.T, s *driver.Full) {
	const requests = 50
	p := newSilentClient(t, s)
	var held atomic.Int32
	var group sync.WaitGroup
	for range requests {
		r := p.newRequest("n")
		r.Queue, r.Until = false, time.Now().Add(operationTimeout)
		group.Go(func() {
			a, err := s.Acquire(t.Context(), r)
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			if a.Held {
				held.Add(1)
			}
		})
	}
	group.Wait()
	if n := held.Load(); n != 1 {
		t.Fatalf("%d of %d requests were granted, want 1", n, requests)
	}
}

func idempotent(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	r := p.newRequest("n")
	first := p.mustAcquire(r)
	r.TTL = p.shortTTL()
	again := p.mustAcquire(r)
	if again.Fence < first.Fence {
		t.Errorf("fence %d after %d", again.Fence, first.Fence)
	}
	if token, left := p.firstHolder("n"); token != r.Token || left < time.Minute/2 {
		t.Errorf("after a repeated acquire with a shorter TTL: held by %q for %v: want most of a minute left", token, left)
	}
	p.mustRelease(r, again.Fence)
	if h := p.holder("n"); h != "" {
		t.Errorf("still held by %s: one release must undo all repeated acquires", h)
	}
	// A repeated acquire also keeps the queue entry.
	holder := p.newRequest("n")
	p.mustAcquire(holder)
	first = p.mustQueue(r, 1)
	p.mustQueue(p.newRequest("n"), 2)
	if again := p.mustQueue(r, 1); again.Ticket != first.Ticket {
		t.Errorf("ticket %d after %d: a repeated acquire lost the queue entry", again.Ticket, first.Ticket)
	}
}

func ownerOnly(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	mine, other := p.newRequest("n"), p.newRequest("n")
	fence := p.mustAcquire(mine).Fence
	if p.release(other, fence) {
		t.Error("a release with another token reports true")
	}
	wantErr(t, p.extend(other, time.Hour), dibs.ErrLost)
	part := mine
	part.Token = mine.Token[:len(mine.Token)-1]
	if p.release(part, fence) {
		t.Error("a release with part of the token reports true")
	}
	p.wantHolder("n", mine.Token)
	if err := p.extend(mine, time.Minute); err != nil {
		t.Errorf("extend by the holder: %v", err)
	}
	p.mustRelease(mine, fence)
	if p.release(mine, fence) {
		t.Error("a second release reports true")
	}
}

func expiry(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	mine, other := p.newRequest("n"), p.newRequest("n")
	ttl := p.shortTTL()
	mine.TTL, other.Queue = ttl, false
	begin := time.Now()
	p.mustAcquire(mine)
	due := time.Now().Add(ttl)
	a := p.acquire(other)
	if time.Since(begin) < ttl && (a.Held || a.Holder != mine.Token) || a.Remaining > ttl {
		t.Fatalf("%+v while another token holds", a)
	}
	p.acquireBy(other, due)
	if took := time.Since(begin); took < ttl {
		t.Errorf("free after %v, want the TTL of %v", took, ttl)
	}
	if p.release(mine, 0) {
		t.Error("the release of an expired lease reports true")
	}
	p.wantHolder("n", other.Token)
}

// fifo starts again with fewer waiters if queue entries expire on a slow machine before the last
// waiter is served.
func fifo(t *testing.T, s *driver.Full) {
	for waiters := 64; !inOrder(t, s, fmt.Sprint("n", waiters), waiters); waiters /= 2 {
		if waiters <= 2 {
			t.Fatalf("%d waiters were not served within %v", waiters, driver.WaiterTTL)
		}
	}
}

// inOrder reports whether the waiters were served in order. It returns false if the
// machine was too slow for a meaningful result.
func inOrder(t *testing.T, s *driver.Full, name string, waiters int) bool {
	var clients []*testClient
	for range 4 {
		clients = append(clients, newClient(t, s))
	}
	holder := newSilentClient(t, s)
	begin := time.Now()
	slow := func() bool { return time.Since(begin) > driver.WaiterTTL/2 } // a silent waiter may be notified to retry
	r := holder.newRequest(name)
	fence := holder.mustAcquire(r).Fence
	requests := make([]driver.AcquireRequest, waiters)
	for i := range requests {
		client := clients[i%len(clients)]
		requests[i] = client.newRequest(name)
		a := client.acquire(requests[i])
		switch {
		case slow():
			return false
		case a.Held || a.Ticket == 0 || a.Position != i+1:
			t.Fatalf("acquire %q: %+v, want it queued at position %d", name, a, i+1)
		}
	}
	for i, next := range requests {
		holder.mustRelease(r, fence)
		if slow() {
			return false
		}
		e := clients[i%len(clients)].nextEventOf(next)
		switch {
		case slow():
			return false
		case e.Kind != driver.EventGranted || e.Token != next.Token:
			t.Fatalf("event %+v, want the grant of %s", e, next.Token)
		case e.Fence <= fence:
			t.Fatalf("fence %d after %d", e.Fence, fence)
		}
		r, fence = next, e.Fence
	}
	holder.mustRelease(r, fence)
	holder.wantHolder(name, "")
	return true
}

func deadWaiter(t *testing.T, s *driver.Full) {
	holder, dead, live := newSilentClient(t, s), newClient(t, s), newClient(t, s)
	h, d, l := holder.newRequest("n"), dead.newRequest("n"), live.newRequest("n")
	fence := holder.mustAcquire(h).Fence
	dead.mustQueue(d, 1)
	live.mustQueue(l, 2)
	for range 6 { // heartbeats beyond the waiter TTL
		time.Sleep(driver.WaiterTTL / 5)
		live.acquire(l)
	}
	if holder.isListed(d) {
		return
	}
	holder.mustRelease(h, fence)
	live.wantGranted(l)
	dead.wantNoGrant(50 * time.Millisecond)
	holder.wantHolder("n", l.Token)
}

func deadFirstWaiter(t *testing.T, s *driver.Full) {
	holder, dead, live := newSilentClient(t, s), newClient(t, s), newSilentClient(t, s)
	h, d, l := holder.newRequest("n"), dead.newRequest("n"), live.newRequest("n")
	d.TTL, l.Queue = time.Hour, false
	fence := holder.mustAcquire(h).Fence
	dead.mustQueue(d, 1)
	begin := time.Now()
	holder.mustRelease(h, fence)
	dead.wantGranted(d) // and does nothing with it
	live.acquireBy(l, time.Now().Add(live.limits.WaiterTTL))
	if took := time.Since(begin); took < driver.WaiterTTL-100*time.Millisecond {
		t.Errorf("free after %v, before the waiter TTL", took)
	}
}

func oneGrant(t *testing.T, s *driver.Full) {
	holder := newSilentClient(t, s)
	h := holder.newRequest("n")
	fence := holder.mustAcquire(h).Fence
	clients := []*testClient{newClient(t, s), newClient(t, s), newClient(t, s)}
	var requests []driver.AcquireRequest
	for i, p := range clients {
		requests = append(requests, p.newRequest("n"))
		p.mustQueue(requests[i], i+1)
	}
	holder.mustRelease(h, fence)
	clients[0].wantGranted(requests[0])
	holder.wantHolder("n", requests[0].Token)
	for _, p := range clients[1:] {
		p.wantNoEvent(50 * time.Millisecond)
	}
}

func fencesGrow(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	var last uint64
	grew := func(how string, fence uint64) {
		t.Helper()
		if fence <= last {
			t.Fatalf("fence %d after %d, %s", fence, last, how)
		}
		last = fence
	}
	for range 20 {
		r := p.newRequest("n")
		grew("acquired", p.acquireSoon(r))
		next := p.newRequest("n")
		p.mustQueue(next, 1)
		p.mustRelease(r, last)
		grew("handed off", p.wantGranted(next).Fence)
		third := p.newRequest("n")
		p.mustQueue(third, 1)
		p.mustRelease(next, 0) // without the fence
		grew("handed off by a release without the fence", p.wantGranted(third).Fence)
		if err := p.s.Cancel(operationContext(t), third); err != nil {
			t.Fatal(err)
		}
	}
	r := p.newRequest("n")
	r.TTL = p.shortTTL()
	grew("acquired", p.mustAcquire(r).Fence)
	p.sleepPast(r.TTL)
	grew("expired", p.mustAcquire(p.newRequest("n")).Fence)
}

func cancel(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	held, first, second := p.newRequest("n"), p.newRequest("n"), p.newRequest("n")
	p.mustAcquire(held)
	p.mustQueue(first, 1)
	p.mustQueue(second, 2)
	for _, r := range []driver.AcquireRequest{first, held, held} { // also cancel twice
		if err := s.Cancel(operationContext(t), r); err != nil {
			t.Fatal(err)
		}
	}
	p.wantGranted(second)
	p.wantHolder("n", second.Token)
	if err := s.Cancel(operationContext(t), first); err != nil {
		t.Fatal(err)
	}
	p.wantHolder("n", second.Token)
	if err := s.Cancel(operationContext(t), second); err != nil {
		t.Fatal(err)
	}
	p.wantUnused("n")
}

func extendRepeatedly(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	p.extendRepeatedly(p.newRequest("mutex"))
	attached := p.newRequest("attached")
	p.mustAcquire(attached)
	for range 2 {
		if err := p.extendAs(attached, 0, time.Minute); err != nil {
			t.Errorf("an attached lease: %v", err)
		}
	}
	p.wantHolder("attached", attached.Token)
}

// extendRepeatedly extends a lease several times. A lease with another token is not extended.
func (p *testClient) extendRepeatedly(r driver.AcquireRequest) {
	p.t.Helper()
	fence := p.mustAcquire(r).Fence
	for i := range 3 {
		if err := p.extendAs(r, fence, time.Duration(i+1)*10*time.Minute); err != nil {
			p.t.Errorf("%s, extension %d: %v", r.Name, i+1, err)
		}
	}
	needs(p.t, p.s, "Inspector")
	state, err := p.s.Inspect(operationContext(p.t), r.Name)
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != r.Token || state.Holders[0].Fence != fence || state.Holders[0].Remaining < 20*time.Minute {
		p.t.Errorf("%s: %+v, %v, want fence %d and half an hour", r.Name, state, err, fence)
	}
	other := r
	other.Token += "x"
	if err := p.extendAs(other, fence, time.Minute); !errors.Is(err, dibs.ErrLost) {
		p.t.Errorf("%s, another token: %v, want ErrLost", r.Name, err)
	}
	p.mustRelease(r, fence)
}

// extendAs sends an extension for a lease with this fence.
func (p *testClient) extendAs(request driver.AcquireRequest, fence uint64, ttl time.Duration) error {
	r := driver.ExtendRequest{Name: request.Name, Token: request.Token, Client: request.Client, Fence: fence, TTL: ttl}
	if fence > 0 {
		r.Weight, r.Limit = request.Weight, request.Limit
	}
	return p.s.Extend(operationContext(p.t), []driver.ExtendRequest{r})[0]
}

func extend(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	var holds []driver.ExtendRequest
	var requests []driver.AcquireRequest
	for i := range 250 {
		r := p.newRequest(fmt.Sprintf("n%d", i))
		requests = append(requests, r)
		holds = append(holds, driver.ExtendRequest{Name: r.Name, Token: r.Token, TTL: time.Minute})
	}
	for i, r := range requests {
		switch i % 3 {
		case 0:
			r.TTL = 25 * time.Second
			p.mustAcquire(r)
		case 1:
			other := p.newRequest(r.Name)
			p.mustAcquire(other)
		}
	}
	for i, err := range s.Extend(operationContext(t), holds) {
		if held := i%3 == 0; held && err != nil || !held && !errors.Is(err, dibs.ErrLost) {
			t.Fatalf("lease %d: %v", i, err)
		}
	}
	if h := p.holder("n2"); h != "" {
		t.Errorf("an extension granted a lease to %s", h)
	}
	if err := p.extend(requests[0], time.Second); err != nil {
		t.Fatal(err)
	}
	if token, left := p.firstHolder("n0"); token != requests[0].Token || left < 30*time.Second {
		t.Errorf("held by %q for %v: an extension by a second shortened a lease of a minute", token, left)
	}
	r := p.newRequest("expires")
	r.TTL = p.shortTTL()
	p.mustAcquire(r)
	p.sleepPast(r.TTL)
	wantErr(t, p.extend(r, time.Minute), dibs.ErrLost)
	p.mustAcquire(p.newRequest("expires"))
}

func missedNotification(t *testing.T, s *driver.Full) {
	holder, silent := newSilentClient(t, s), newSilentClient(t, s)
	h, d := holder.newRequest("n"), silent.newRequest("n")
	fence := holder.mustAcquire(h).Fence
	silent.mustQueue(d, 1)
	holder.mustRelease(h, fence)
	if a := silent.mustAcquire(d); a.Fence <= fence {
		t.Errorf("fence %d after %d", a.Fence, fence)
	}
	silent.wantHolder("n", d.Token)
}

func ticket(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	h, first, second := p.newRequest("n"), p.newRequest("n"), p.newRequest("n")
	fence := p.mustAcquire(h).Fence
	a := p.mustQueue(first, 1)
	p.mustQueue(second, 2)
	p.mustRelease(h, fence)
	e := p.wantGranted(first)
	if e.Ticket != a.Ticket {
		t.Errorf("granted with ticket %d, queued with %d", e.Ticket, a.Ticket)
	}
	b := p.mustQueue(second, 1)
	p.mustRelease(first, e.Fence)
	if e := p.wantGranted(second); e.Ticket != b.Ticket {
		t.Errorf("granted with ticket %d, queued with %d", e.Ticket, b.Ticket)
	}
}

func newTicket(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	h, r := p.newRequest("n"), p.newRequest("n")
	fence := p.mustAcquire(h).Fence
	short, longest := p.shortHandoff()
	r.TTL = short
	before := p.mustQueue(r, 1)
	p.mustRelease(h, fence)
	p.wantGranted(r)
	next := p.newRequest("n")
	next.Queue = false
	p.acquireBy(next, time.Now().Add(longest))
	if after := p.mustQueue(r, 1); after.Ticket <= before.Ticket {
		t.Errorf("ticket %d after %d", after.Ticket, before.Ticket)
	}
}

func tryDoesNotQueue(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	h, try, first := p.newRequest("n"), p.newRequest("n"), p.newRequest("n")
	try.Queue = false
	fence := p.mustAcquire(h).Fence
	if a := p.acquire(try); a.Held || a.Ticket != 0 || a.Position != 0 || a.Holder != h.Token {
		t.Errorf("%+v while %s holds", a, h.Token)
	}
	// Its position can be 2: a quorum node that granted the try may not have received the cancel
	// yet.
	if a := p.acquire(first); a.Held || a.Ticket == 0 {
		t.Fatalf("acquire %q: %+v, want it queued", first.Name, a)
	}
	p.mustRelease(h, fence)
	p.wantGranted(first)
	if a := p.acquire(try); a.Held {
		t.Error("a try overtook a waiter")
	}
}

func expiredWithWaiters(t *testing.T, s *driver.Full) {
	p, q := newClient(t, s), newClient(t, s)
	for try := 1; ; try++ {
		name := fmt.Sprintf("n%d", try)
		h, first, late := p.newRequest(name), p.newRequest(name), q.newRequest(name)
		h.TTL = max(ttl/2, p.limits.MinTTL)
		begin := time.Now()
		fence := p.mustAcquire(h).Fence
		a := p.acquire(first)
		if a.Held && time.Since(begin) >= h.TTL && try < tries {
			continue
		}
		if a.Held || a.Ticket == 0 || a.Position != 1 {
			t.Fatalf("%+v, want it queued", a)
		}
		time.Sleep(h.TTL + 50*time.Millisecond)
		if a := q.acquire(late); a.Held {
			t.Fatal("a new request overtook a waiter")
		}
		if e := p.wantGranted(first); e.Fence <= fence || e.Ticket != a.Ticket {
			t.Errorf("%+v after fence %d with ticket %d", e, fence, a.Ticket)
		}
		p.wantHolder(name, first.Token)
		return
	}
}

func expiredRequest(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	p.mustAcquire(p.newRequest("warm-up")) // a store may read a server's clock with it
	r := p.newRequest("n")
	r.Until = time.Now().Add(-time.Second)
	if a, err := s.Acquire(t.Context(), r); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for an expired request", a, err)
	}
	h := p.newRequest("n")
	p.mustAcquire(h)
	if a, err := s.Acquire(t.Context(), r); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for an expired request", a, err)
	}
	p.wantNoWaiter("n") // the expired waiter
}

func expiredRelease(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	h := p.newRequest("n")
	p.mustAcquire(h)
	before := time.Now().Add(-time.Second)
	if freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: h.Token, Until: before}); !errors.Is(err, dibs.ErrUnavailable) || freed {
		t.Errorf("%v, %v for an expired release", freed, err)
	}
	late := h
	late.Until = before
	wantErr(t, s.Cancel(t.Context(), late), dibs.ErrUnavailable)
	p.wantHolder("n", h.Token)
	p.mustRelease(h, 0)
}

func reserve(t *testing.T, s *driver.Full) {
	// A store with several nodes can lose an event, because the waiter's queue entry may reach some
	// nodes after the release. It should not lose three in a row.
	for _, name := range []string{"n", "o", "p"} {
		if reserveOn(t, s, name) {
			return
		}
	}
	t.Error("no event in three tries: the first waiter is not notified to retry")
}

// reserveOn reports whether the first waiter was notified to retry.
func reserveOn(t *testing.T, s *driver.Full, name string) bool {
	p := newClient(t, s)
	h, first := p.newRequest(name), p.newRequest(name)
	ttl := p.shortTTL()
	fence := p.mustAcquire(h).Fence
	p.mustQueue(first, 1)
	begin := time.Now()
	freed, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: name, Token: h.Token, Fence: fence, Reserve: ttl})
	if err != nil || !freed {
		t.Fatalf("release: %v, %v", freed, err)
	}
	switch e, ok := p.eventWithin(2 * time.Second); {
	case !ok:
		return false
	case e.Kind != driver.EventRetry || e.Token != first.Token:
		t.Fatalf("event %+v, want EventRetry", e)
	}
	due := time.Now().Add(ttl)
	wantReserved(p, h, begin.Add(ttl))
	a := p.acquire(first)
	if a.Held && time.Since(begin) < ttl || a.Remaining > ttl {
		t.Fatalf("%+v just after a release with Reserve", a)
	}
	p.acquireBy(first, due)
	if took := time.Since(begin); took < ttl-10*time.Millisecond {
		t.Errorf("free after %v, want %v", took, ttl)
	}
	return true
}

// wantReserved checks that c, released with Reserve, no longer holds: a renewal in flight should
// not extend it. The name is reserved until the given time, or slightly longer.
func wantReserved(p *testClient, r driver.AcquireRequest, kept time.Time) {
	p.t.Helper()
	wantErr(p.t, p.extend(r, time.Hour), dibs.ErrLost)
	if p.s.Has("Resizer") && p.mustResize(r, r.Weight, r.Limit).Held {
		p.t.Error("resize: held after a release with Reserve")
	}
	if p.release(r, 0) {
		p.t.Error("a second release reports true")
	}
	if !p.s.Has("Inspector") {
		return // the replies to the waiter show it
	}
	state := p.state(r.Name)
	over := !time.Now().Before(kept) // then the name may be free, or held by a waiter
	for _, h := range state.Holders {
		if h.Token == r.Token && !h.Reserved || h.Token != r.Token && !over {
			p.t.Errorf("held by %+v, want the name of %s reserved", h, r.Token)
		}
	}
	if len(state.Holders) == 0 && !over {
		p.t.Errorf("free, want the name of %s reserved", r.Token)
	}
}

// reserveForLong acquires and reserves names for as long as the interval of a periodic job may last.
func reserveForLong(t *testing.T, s *driver.Full) {
	const day = 24 * time.Hour
	p := newClient(t, s)
	for i, d := range []time.Duration{30 * day, driver.MaxReserve} {
		r := p.newRequest(fmt.Sprintf("n%d", i))
		r.TTL, r.MinHold = d, d
		wantLeft := func(what string, left time.Duration, reserved bool) {
			t.Helper()
			if left < d-time.Minute || left > d+time.Second {
				t.Errorf("%s of %v: %v left, want all of it; reserved %v", what, d, left, reserved)
			}
		}
		wantShown := func(reserved bool) {
			t.Helper()
			busy := p.acquire(p.newRequest(r.Name))
			if busy.Held || busy.Holder != r.Token || busy.Reserved != reserved {
				t.Errorf("%+v, want busy with %s, reserved %v", busy, r.Token, reserved)
			}
			wantLeft("reply", busy.Remaining, reserved)
			if !s.Has("Inspector") {
				return
			}
			state := p.state(r.Name)
			if len(state.Holders) != 1 || state.Holders[0].Reserved != reserved {
				t.Fatalf("%+v, want one holder, reserved %v", state.Holders, reserved)
			}
			wantLeft("state", state.Holders[0].Remaining, reserved)
		}
		fence := p.mustAcquire(r).Fence
		wantShown(false)
		if err := p.extend(r, ttl); err != nil { // it never shortens a lease
			t.Errorf("extend: %v", err)
		}
		wantShown(false)
		freed, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: r.Name, Token: r.Token, Fence: fence, Reserve: d})
		if err != nil || !freed {
			t.Fatalf("release: %v, %v", freed, err)
		}
		wantShown(true)
		ended, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: r.Name, Token: r.Token, Unreserve: true})
		if err != nil || !ended {
			t.Errorf("unreserve: %v, %v", ended, err)
		}
	}
}

// unreserve ends a reservation by its token, as an operator does. It ends no lease.
func unreserve(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	unreserveNow := func(r driver.AcquireRequest, want bool) {
		t.Helper()
		ended, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: r.Name, Token: r.Token, Unreserve: true})
		if err != nil || ended != want {
			t.Errorf("unreserve: %v, %v, want %v", ended, err, want)
		}
	}
	for _, h := range []driver.AcquireRequest{p.newRequest("n"), p.newShared("shared", 2, 3)} {
		fence := p.mustAcquire(h).Fence
		unreserveNow(h, false) // it is a lease
		freed, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: h.Name, Token: h.Token, Fence: fence, Reserve: time.Hour})
		if err != nil || !freed {
			t.Fatalf("release: %v, %v", freed, err)
		}
		next := p.newRequest(h.Name)
		reply := p.acquire(next)
		if reply.Held || reply.Holder != h.Token || !reply.Reserved {
			t.Errorf("%+v, want busy with the reservation of %s", reply, h.Token)
		}
		unreserveNow(h, true)
		unreserveNow(h, false)
		p.mustAcquire(next)
	}
}

func inspect(t *testing.T, s *driver.Full) {
	needs(t, s, "Inspector", "Lister")
	p := newSilentClient(t, s)
	if state, err := s.Inspect(operationContext(t), "n"); err != nil || len(state.Holders) != 0 || state.Waiting != 0 || state.Name != "n" {
		t.Errorf("of a free name: %+v, %v", state, err)
	}
	h := p.newRequest("n")
	h.Token += ":backup"
	fence := p.mustAcquire(h).Fence
	first, second := p.newRequest("n"), p.newRequest("n")
	p.mustQueue(first, 1)
	p.mustQueue(second, 2)
	state, err := s.Inspect(operationContext(t), "n")
	if err != nil {
		t.Fatal(err)
	}
	if state.Foreign != nil {
		t.Errorf("a lock of dibs is described as foreign: %+v", state.Foreign)
	}
	if len(state.Holders) != 1 || state.Holders[0].Token != h.Token {
		t.Errorf("holders %+v, want %s", state.Holders, h.Token)
	} else if left := state.Holders[0].Remaining; left <= 0 || left > h.TTL {
		t.Errorf("%v left of %v", left, h.TTL)
	}
	if state.Waiting != 2 || len(state.Waiters) != 2 || state.Waiters[0].Token != first.Token || state.Waiters[1].Token != second.Token {
		t.Errorf("waiters %+v (%d), want two", state.Waiters, state.Waiting)
	}
	if state.Fence < fence {
		t.Errorf("fence %d, granted %d", state.Fence, fence)
	}
	for _, name := range []string{"m*", "m1"} {
		p.mustAcquire(p.newRequest(name))
	}
	for pattern, want := range map[string]int{"*": 3, "m*": 2, `m\*`: 1, "m?": 2, "[n-z]": 1, "x*": 0} {
		names, err := s.List(operationContext(t), pattern)
		if err != nil || len(names) != want {
			t.Errorf("list %q: %q, %v: want %d", pattern, names, err, want)
		}
	}
}

func invalidNames(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	for _, name := range []string{"", strings.Repeat("n", driver.MaxName+1), "not\xffutf8"} {
		r := p.newRequest(name)
		_, err := s.Acquire(t.Context(), r)
		wantErr(t, err, dibs.ErrInvalid)
		_, err = s.Inspect(operationContext(t), name) // also for a store without states
		wantErr(t, err, dibs.ErrInvalid)
	}
	for _, bad := range []func(*driver.AcquireRequest){
		func(r *driver.AcquireRequest) { r.Weight = 0 },
		func(r *driver.AcquireRequest) { r.Weight = 2 },
		func(r *driver.AcquireRequest) { r.TTL = 0 },
	} {
		r := p.newRequest("n")
		bad(&r)
		_, err := s.Acquire(t.Context(), r)
		wantErr(t, err, dibs.ErrInvalid)
	}
	p.wantHolder("n", "")
}

func anyName(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	requests := make(map[string]driver.AcquireRequest)
	for _, name := range oddNames() {
		r := p.newRequest(name)
		p.mustAcquire(r)
		requests[name] = r
	}
	for name, r := range requests {
		p.wantHolder(name, r.Token)
		if err := p.extend(r, time.Minute); err != nil {
			t.Errorf("extend %q: %v", name, err)
		}
		next := p.newRequest(name)
		p.mustQueue(next, 1)
		p.mustRelease(r, 0)
		p.wantGranted(next)
		p.mustRelease(next, 0)
		p.wantHolder(name, "")
	}
}

func endedContext(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := p.newRequest("n")
	r.Until = time.Now().Add(operationTimeout)
	begin := time.Now()
	_, err := s.Acquire(ctx, r)
	wantErr(t, err, dibs.ErrUnavailable)
	_, err = s.Release(ctx, driver.ReleaseRequest{Name: "n", Token: r.Token, Until: r.Until})
	wantErr(t, err, dibs.ErrUnavailable)
	wantErr(t, s.Cancel(ctx, r), dibs.ErrUnavailable)
	for _, err := range s.Extend(ctx, []driver.ExtendRequest{{Name: "n", Token: r.Token, TTL: time.Minute}}) {
		wantErr(t, err, dibs.ErrUnavailable)
	}
	if took := time.Since(begin); took > 5*time.Second { // the calls waited until their deadline
		t.Errorf("took %v", took)
	}
}

func clients(t *testing.T, s *driver.Full) {
	const processes, workers, rounds = 4, 8, 10
	var inside, total atomic.Int32
	var last atomic.Uint64
	var group sync.WaitGroup
	for range processes {
		c := dibs.New(s, dibs.TTL(time.Minute), dibs.Timeout(operationTimeout))
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		for range workers {
			group.Go(func() {
				for range rounds {
					err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two concurrent holders")
						}
						if f, err := dibs.Fence(ctx); err != nil || f <= last.Swap(f) {
							t.Error("a fence did not grow")
						}
						total.Add(1)
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	if n := total.Load(); n != processes*workers*rounds {
		t.Errorf("%d served, want %d", n, processes*workers*rounds)
	}
}
