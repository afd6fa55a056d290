package storetest

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

func silenceCases() []Case {
	return []Case{
		{"silent waiter returns", "a waiter that was silent, and was passed over, has its former place at its next request", silentWaiterReturns},
		{"all waiters are silent", "if no waiter sent a heartbeat, the store was not reachable: the first requests afterwards overtake nobody", allSilent},
		{"only dead waiters", "waiters that died while nobody asked for the name cost the next request at most a waiter TTL, together", onlyDeadWaiters},
		{"two missed grants", "a late event of a grant does not count for a later queue entry, though the reply with its ticket was lost", twoMissedGrants},
	}
}

// RunTickets runs the cases for a store on a single server, which restores a queue entry by the
// ticket in the request. A quorum does not run them: its nodes restore entries independently, so
// the order of their votes can change. Nor does a store whose server decides the order of the queue,
// such as etcd: a new entry is the last.
func RunTickets(t *testing.T, open func(t *testing.T) driver.Store) { run(t, placeCases(), open) }

// RunTicketsSynctest is RunTickets as RunSynctest is Run.
func RunTicketsSynctest(t *testing.T, open func(t *testing.T) driver.Store) {
	runSynctest(t, placeCases(), open)
}

func placeCases() []Case {
	return []Case{
		{"all waiters are silent at a release", "a release when no waiter has sent a heartbeat overtakes nobody", allSilentAtRelease},
		{"missed grant", "a waiter that missed its grant has its former place, and the event of that grant is not taken for a new one", missedGrant},
	}
}

// again is a waiter's next request.
func (p *testClient) again(r driver.AcquireRequest) driver.AcquireRequest {
	r.Ticket = p.tickets[r.Token]
	return r
}

// queueThree acquires a name, and lets three requests queue for it.
func (p *testClient) queueThree(name string) (holder driver.AcquireRequest, fence uint64, waiters []driver.AcquireRequest) {
	p.t.Helper()
	holder = p.newRequest(name)
	fence = p.mustAcquire(holder).Fence
	for i := range 3 {
		w := p.newRequest(name)
		p.mustQueue(w, i+1)
		waiters = append(waiters, w)
	}
	return holder, fence, waiters
}

func silentWaiterReturns(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	h, fence, w := p.queueThree("n")
	for range 8 {
		time.Sleep(driver.WaiterTTL / 5)
		for _, live := range w[1:] {
			p.acquire(p.again(live))
		}
	}
	p.mustRelease(h, fence)
	e := p.nextEventOf(w[1])
	if e.Kind != driver.EventGranted || e.Token == w[2].Token {
		t.Fatalf("event %+v, want the grant of the second waiter, or of the first if the store knows that it is alive", e)
	}
	if e.Token == w[1].Token {
		p.mustQueue(p.again(w[0]), 1)
		p.mustQueue(p.again(w[2]), 2)
		p.mustRelease(w[1], e.Fence)
		e = p.wantGranted(w[0])
	}
	p.mustRelease(w[0], e.Fence)
}

func allSilent(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	h, fence, w := p.queueThree("n")
	time.Sleep(driver.WaiterTTL * 7 / 5)
	for i := range w { // the last first
		if a := p.acquire(p.again(w[len(w)-1-i])); a.Held || a.Ticket == 0 {
			t.Fatalf("%+v, want it queued", a)
		}
	}
	for _, next := range w {
		p.mustRelease(h, fence)
		p.acquireBy(p.again(next), time.Now())
		h, fence = next, 0
	}
}

func allSilentAtRelease(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	h, fence, w := p.queueThree("n")
	time.Sleep(driver.WaiterTTL * 7 / 5)
	p.mustRelease(h, fence)
	for i := len(w) - 1; i > 0; i-- {
		if p.acquire(p.again(w[i])).Held {
			t.Fatalf("waiter %d overtook waiter 1", i+1)
		}
	}
	p.mustAcquire(p.again(w[0]))
}

func missedGrant(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	h, r, behind := p.newRequest("n"), p.newRequest("n"), p.newRequest("n")
	fence := p.mustAcquire(h).Fence
	short, longest := p.shortHandoff()
	r.TTL = short
	before := p.mustQueue(r, 1)
	p.mustRelease(h, fence)
	missed := p.wantGranted(r)
	next := p.newRequest("n")
	next.Queue = false
	p.acquireBy(next, time.Now().Add(longest))
	p.mustQueue(behind, 1)
	if after := p.mustQueue(p.again(r), 1); after.Ticket <= before.Ticket && after.Fence < missed.Fence {
		t.Errorf("%+v, want a larger ticket than %d, or that earlier fences are up to %d", after, before.Ticket, missed.Fence)
	}
	p.mustQueue(p.again(behind), 2)
}

func twoMissedGrants(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	h, r := p.newRequest("n"), p.newRequest("n")
	short, longest := p.shortHandoff()
	r.TTL = short
	p.mustAcquire(h)
	var late driver.Event
	for i := range 2 {
		if a := p.mustQueue(r, 1); i == 0 {
			r.Ticket = a.Ticket // the second reply is lost
		}
		p.mustRelease(h, 0)
		late = p.wantGranted(r)
		h = p.newRequest("n")
		h.Queue = false
		p.acquireBy(h, time.Now().Add(longest))
	}
	last := p.mustQueue(r, 1)
	if late.Ticket == last.Ticket && late.Fence > last.Fence {
		t.Errorf("event %+v of a grant that has ended counts after the reply %+v", late, last)
	}
	p.mustRelease(h, 0)
	if e := p.wantGranted(r); e.Ticket != last.Ticket || e.Fence <= last.Fence {
		t.Errorf("event %+v does not count after the reply %+v", e, last)
	}
}

func onlyDeadWaiters(t *testing.T, s *driver.Full) {
	dead, p := newSilentClient(t, s), newSilentClient(t, s)
	h, fence, _ := dead.queueThree("n")
	time.Sleep(driver.WaiterTTL * 7 / 5)
	dead.mustRelease(h, fence)
	p.acquireBy(p.newRequest("n"), time.Now().Add(p.limits.WaiterTTL))
}
