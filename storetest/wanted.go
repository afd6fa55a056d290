package storetest

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// The cases for NotifyWanted.

func wantedCases() []Case {
	return []Case{
		{"wanted", "a holder that asked for it is notified of the first waiter, once", wanted},
		{"wanted already", "the reply to a holder says whether a request waits already", wantedAlready},
		{"wanted again", "a waiter that leaves is no waiter: a holder that asks again is notified of the next one", wantedAgain},
		{"not asked", "a holder that did not ask is not notified, even if the holder before it did", notAsked},
		{"wanted after renewal", "a renewal keeps what the holder asked for", wantedAfterRenewal},
		{"wanted after resize", "a change of the weight keeps what the holder asked for", wantedAfterResize},
		{"wanted needs a lease", "a token that does not hold is not notified", wantedNeedsLease},
		{"wanted and dead waiters", "a dead waiter is no waiter, and does not hide the next one", wantedAndDeadWaiters},
		{"wanted shared", "shared holders that asked for it are notified of the first waiter", wantedShared},
		{"wanted by many", "of many shared holders, at least MaxWanted are notified", wantedByMany},
		{"wanted by a multi-lock", "a waiting multi-lock is a waiter", wantedByMultiLock},
		{"invalid wanted", "an invalid request returns ErrInvalid", invalidWanted},
	}
}

// registerWanted asks to be notified of the next waiter.
func (p *testClient) registerWanted(r driver.AcquireRequest) bool {
	p.t.Helper()
	needs(p.t, p.s, "WantedNotifier")
	wanted, err := p.s.NotifyWanted(operationContext(p.t), driver.WantedRequest{Name: r.Name, Token: r.Token, Client: r.Client})
	if err != nil {
		p.t.Fatalf("notify wanted %q: %v", r.Name, err)
	}
	return wanted
}

// wantWanted fails unless the next event reports a waiting request.
func (p *testClient) wantWanted(r driver.AcquireRequest) {
	p.t.Helper()
	if e := p.nextEvent(); e.Kind != driver.EventWanted || e.Token != r.Token {
		p.t.Fatalf("event %+v, want EventWanted for %s", e, r.Token)
	}
}

// quiet is the time that a case waits for an event which should not come.
const quiet = 50 * time.Millisecond

func wanted(t *testing.T, s *driver.Full) {
	holder, other := newClient(t, s), newSilentClient(t, s)
	h := holder.newRequest("n")
	holder.mustAcquire(h)
	for range 2 { // repeated calls have no further effect
		if holder.registerWanted(h) {
			t.Fatal("wanted before anybody waits")
		}
	}
	try := other.newRequest("n")
	try.Queue = false
	other.acquire(try)
	holder.wantNoEvent(quiet)
	other.mustQueue(other.newRequest("n"), 1)
	holder.wantWanted(h)
	other.mustQueue(other.newRequest("n"), 2)
	holder.wantNoEvent(quiet)
}

func wantedAlready(t *testing.T, s *driver.Full) {
	holder, other := newClient(t, s), newSilentClient(t, s)
	h, w := holder.newRequest("n"), other.newRequest("n")
	holder.mustAcquire(h)
	other.mustQueue(w, 1)
	if !holder.registerWanted(h) {
		t.Fatal("not wanted, want it: a request waits")
	}
}

func wantedAgain(t *testing.T, s *driver.Full) {
	holder, other := newClient(t, s), newSilentClient(t, s)
	h, w := holder.newRequest("n"), other.newRequest("n")
	holder.mustAcquire(h)
	other.mustQueue(w, 1)
	if err := s.Cancel(operationContext(t), w); err != nil {
		t.Fatal(err)
	}
	if holder.registerWanted(h) {
		t.Fatal("wanted after the only waiter has left")
	}
	other.mustQueue(other.newRequest("n"), 1)
	holder.wantWanted(h)
}

func notAsked(t *testing.T, s *driver.Full) {
	p, other := newClient(t, s), newSilentClient(t, s)
	first, second := p.newRequest("n"), p.newRequest("n")
	fence := p.mustAcquire(first).Fence
	p.registerWanted(first)
	p.mustRelease(first, fence)
	p.acquireSoon(second)
	other.mustQueue(other.newRequest("n"), 1)
	p.wantNoEvent(quiet)

	// The same by a hand-off.
	h, w := p.newRequest("m"), p.newRequest("m")
	fence = p.mustAcquire(h).Fence
	p.registerWanted(h)
	p.mustQueue(w, 1)
	p.wantWanted(h)
	p.mustRelease(h, fence)
	p.wantGranted(w)
	other.mustQueue(other.newRequest("m"), 1)
	p.wantNoEvent(quiet)
	if !p.registerWanted(w) {
		t.Fatal("not wanted after a hand-off, want it: a request waits")
	}
}

func wantedAfterRenewal(t *testing.T, s *driver.Full) {
	holder, other := newClient(t, s), newSilentClient(t, s)
	h := holder.newRequest("n")
	fence := holder.mustAcquire(h).Fence
	holder.registerWanted(h)
	request := driver.ExtendRequest{Name: h.Name, Token: h.Token, Client: h.Client, Fence: fence, TTL: 2 * time.Minute, Weight: 1, Limit: 1}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{request})[0]; err != nil {
		t.Fatal(err)
	}
	other.mustQueue(other.newRequest("n"), 1)
	holder.wantWanted(h)
}

func wantedAfterResize(t *testing.T, s *driver.Full) {
	holder, other := newClient(t, s), newSilentClient(t, s)
	h := holder.newRequest("n")
	fence := holder.mustAcquire(h).Fence
	holder.registerWanted(h)
	for range 3 {
		reply := holder.mustResize(h, 1, 1)
		if !reply.Held || reply.Fence < fence {
			t.Fatalf("resize to the same weight: %+v, want a fence of at least %d", reply, fence)
		}
		fence = reply.Fence
	}
	w := other.newRequest("n")
	other.mustQueue(w, 1)
	holder.wantWanted(h)
	holder.mustRelease(h, fence)
	if next := other.mustAcquire(w).Fence; next <= fence {
		t.Fatalf("fence %d after %d", next, fence)
	}
}

func wantedNeedsLease(t *testing.T, s *driver.Full) {
	p, holder := newClient(t, s), newSilentClient(t, s)
	h, stranger := holder.newRequest("n"), p.newRequest("n")
	if p.registerWanted(stranger) {
		t.Fatal("a free name is wanted")
	}
	holder.mustAcquire(h)
	if p.registerWanted(stranger) {
		t.Fatal("wanted from a token that does not hold")
	}
	holder.mustQueue(holder.newRequest("n"), 1)
	if p.registerWanted(stranger) {
		t.Fatal("wanted from a token that does not hold")
	}
	p.wantNoEvent(quiet)
}

func wantedAndDeadWaiters(t *testing.T, s *driver.Full) {
	holder, dead, other := newClient(t, s), newSilentClient(t, s), newSilentClient(t, s)
	h := holder.newRequest("n")
	holder.mustAcquire(h)
	d := dead.newRequest("n")
	dead.mustQueue(d, 1)
	time.Sleep(driver.WaiterTTL + 200*time.Millisecond)
	if holder.isListed(d) {
		return
	}
	if holder.registerWanted(h) {
		t.Fatal("wanted by a waiter that is dead")
	}
	if a := other.acquire(other.newRequest("n")); a.Held || a.Ticket == 0 {
		t.Fatalf("acquire: %+v, want it queued", a)
	}
	holder.wantWanted(h)
}

func wantedShared(t *testing.T, s *driver.Full) {
	p, q, other := newClient(t, s), newClient(t, s), newClient(t, s)
	first, second := p.newRequest("n"), q.newRequest("n")
	for client, r := range map[*testClient]*driver.AcquireRequest{p: &first, q: &second} {
		r.Limit = driver.Unlimited
		client.mustAcquire(*r)
		if client.registerWanted(*r) {
			t.Fatal("wanted before anybody waits")
		}
	}
	other.mustQueue(other.newRequest("n"), 1)
	p.wantWanted(first)
	q.wantWanted(second)

	reader := p.newRequest("n") // queues behind the exclusive request
	reader.Limit = driver.Unlimited
	p.mustQueue(reader, 2)
	p.wantNoEvent(quiet)
}

func wantedByMany(t *testing.T, s *driver.Full) {
	p, other := newClient(t, s), newSilentClient(t, s)
	holders := make(map[string]bool)
	for range driver.MaxWanted + 6 {
		r := p.newRequest("n")
		r.Limit = driver.Unlimited
		p.mustAcquire(r)
		p.registerWanted(r)
		holders[r.Token] = true
	}
	other.mustQueue(other.newRequest("n"), 1)
	for range driver.MaxWanted {
		e := p.nextEvent()
		if e.Kind != driver.EventWanted || !holders[e.Token] {
			t.Fatalf("event %+v, want EventWanted, once for each holder", e)
		}
		delete(holders, e.Token)
	}
}

func wantedByMultiLock(t *testing.T, s *driver.Full) {
	holder, other := newClient(t, s), newSilentClient(t, s)
	h := holder.newRequest("b")
	both := other.newMulti("a", "b")
	holder.mustAcquire(h)
	holder.registerWanted(h)
	other.mustQueue(both, 1)
	holder.wantWanted(h)
}

func voteWanted(t *testing.T, s *driver.Full) {
	holder, other := newClient(t, s), newSilentClient(t, s)
	h, w := holder.newVoteRequest("n", 1), other.newVoteRequest("n", 2)
	holder.mustAcquire(h)
	if holder.registerWanted(h) {
		t.Fatal("wanted before anybody waits")
	}
	other.mustQueue(w, 1)
	holder.wantWanted(h)
}

func invalidWanted(t *testing.T, s *driver.Full) {
	needs(t, s, "WantedNotifier")
	for _, r := range []driver.WantedRequest{
		{Name: "", Token: "a:1:b:2", Client: "a:1:b"},
		{Name: "n", Token: "", Client: "a:1:b"},
		{Name: "n", Token: "a:1:b:2", Client: ""},
		{Name: "n", Token: "a:1:b:2", Client: "a b"},
	} {
		_, err := s.NotifyWanted(operationContext(t), r)
		wantErr(t, err, driver.ErrInvalid)
	}
}
