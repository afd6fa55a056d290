package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// VoteCases returns the cases for driver.Voter. Their store must implement it.
func VoteCases() []Case {
	return []Case{
		{"vote order", "vote requests are served in the order of their tickets, whenever they arrive", voteOrder},
		{"vote node", "the reply to a vote request, and the event of its grant, name the store", voteNode},
		{"vote fence", "a vote is granted with the proposed fence, or a larger one if necessary; the reply to a waiter has the largest fence so far", voteFence},
		{"vote without fence", "a vote request without a fence is granted one", voteWithoutFence},
		{"vote relinquish", "a relinquished vote goes to an older waiter, and not to a younger one", voteRelinquish},
		{"vote heartbeat", "a queue entry with a ticket lives by its heartbeats, whatever clock issued the ticket", voteHeartbeat},
		{"vote cancel", "a cancelled vote request leaves nothing behind, and its vote is handed off", voteCancel},
		{"vote readers", "readers with adjacent tickets are granted together, and wait behind an older writer", voteReaders},
		{"vote resize", "a resized lease has a fence that is not below the proposed one", voteResize},
		{"vote wanted", "a vote request that queues is reported to a holder that asked for it", voteWanted},
		{"without vote", "requests with and without a vote share one queue: a waiter with one is granted, or notified to retry", withoutVote},
	}
}

// RunVotes runs VoteCases in parallel, each on its own store.
func RunVotes(t *testing.T, open func(t *testing.T) driver.Voter) {
	run(t, append(VoteCases(), lostVoteReplyCases()...), func(t *testing.T) driver.Store { return open(t) })
}

// RunVotesInBubble runs VoteCases, each in a testing/synctest bubble.
func RunVotesInBubble(t *testing.T, open func(t *testing.T) driver.Voter) {
	runInBubble(t, append(VoteCases(), lostVoteReplyCases()...), func(t *testing.T) driver.Store { return open(t) })
}

// newVoteRequest returns a new request with a vote. Its fence is far ahead of every clock.
func (p *testClient) newVoteRequest(name string, ticket uint64) driver.AcquireRequest {
	r := p.newRequest(name)
	r.Vote = &driver.Vote{Ticket: ticket, Fence: farFuture + p.seq}
	return r
}

const farFuture = 3_000_000_000_000_000 // in µs: the year 2065

// relinquish sends a request to give the name to an older request.
func (p *testClient) relinquish(r driver.AcquireRequest) driver.AcquireReply {
	p.t.Helper()
	vote := *r.Vote
	vote.Relinquish = true
	r.Vote = &vote
	return p.acquire(r)
}

// releaseVote releases with a vote.
func (p *testClient) releaseVote(request driver.AcquireRequest, fence uint64) {
	p.t.Helper()
	r := driver.ReleaseRequest{Name: request.Name, Token: request.Token, Until: time.Now().Add(operationTimeout), Vote: &driver.Vote{Fence: fence}}
	if freed, err := p.s.Release(p.t.Context(), r); !freed || err != nil {
		p.t.Fatalf("release %q: %v, %v", request.Name, freed, err)
	}
}

func voteOrder(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	first := p.newVoteRequest("n", 50)
	p.mustAcquire(first)
	tickets := []uint64{300, 100, 200, farFuture, 1}
	requests := make(map[uint64]driver.AcquireRequest)
	for i, ticket := range tickets {
		requests[ticket] = p.newVoteRequest("n", ticket)
		before := 1
		for _, other := range tickets[:i] {
			if other < ticket {
				before++
			}
		}
		if a := p.mustQueue(requests[ticket], before); a.Ticket != ticket {
			t.Fatalf("ticket %d, want %d", a.Ticket, ticket)
		}
	}
	slices.Sort(tickets)
	for i, ticket := range tickets {
		least := uint64(farFuture + 100*(i+1))
		p.releaseVote(first, least)
		first = requests[ticket]
		if e := p.wantGranted(first); e.Ticket != ticket || e.Fence != least {
			t.Fatalf("event %+v, want ticket %d and fence %d", e, ticket, least)
		}
	}
}

func voteNode(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	first, second := p.newVoteRequest("n", 1), p.newVoteRequest("n", 2)
	id := p.acquire(first).Vote.Node
	if id == "" || p.acquire(first).Vote.Node != id || p.acquire(second).Vote.Node != id {
		t.Fatalf("store %q, and another one in the next reply", id)
	}
	p.releaseVote(first, farFuture)
	if e := p.wantGranted(second); e.Vote.Node != id {
		t.Fatalf("event %+v, want store %q", e, id)
	}
	plain := p.newRequest("without")
	if a := p.mustAcquire(plain); a.Vote.Node != "" {
		t.Fatalf("%+v: the reply to a request without a vote names the store", a)
	}
}

func voteFence(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	r := p.newVoteRequest("n", 1)
	proposed := r.Vote.Fence
	if a := p.mustAcquire(r); a.Fence != proposed {
		t.Fatalf("fence %d, want the proposed one, %d", a.Fence, proposed)
	}
	again := p.mustAcquire(r)
	if again.Fence <= proposed {
		t.Fatalf("fence %d of the repeated request, want more than %d", again.Fence, proposed)
	}
	low := p.newVoteRequest("n", 2)
	low.Vote.Fence = 1
	if a := p.mustQueue(low, 1); a.Fence < again.Fence {
		t.Fatalf("largest fence %d, want %d", a.Fence, again.Fence)
	}
	p.releaseVote(r, 1)
	if e := p.wantGranted(low); e.Fence <= again.Fence {
		t.Fatalf("fence %d after %d", e.Fence, again.Fence)
	}
}

func voteWithoutFence(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	first, second := p.newVoteRequest("n", 1), p.newVoteRequest("n", 2)
	first.Vote.Fence, second.Vote.Fence = 0, 0
	fence := p.mustAcquire(first).Fence
	p.mustQueue(second, 1)
	p.releaseVote(first, 0)
	if e := p.wantGranted(second); fence == 0 || e.Fence <= fence {
		t.Fatalf("fence %d after %d", e.Fence, fence)
	}
}

func voteRelinquish(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	old, young, mid := p.newVoteRequest("n", 10), p.newVoteRequest("n", 30), p.newVoteRequest("n", 20)
	p.mustAcquire(mid)
	if a := p.relinquish(mid); !a.Held {
		t.Fatalf("%+v: relinquished without a waiter", a)
	}
	p.mustQueue(young, 1)
	if a := p.relinquish(mid); !a.Held {
		t.Fatalf("%+v: relinquished to a younger request", a)
	}
	p.wantNoEvent(0)
	p.mustQueue(old, 1)
	if a := p.relinquish(mid); a.Held || a.Holder != old.Token || a.Position != 1 || a.Ticket != 20 {
		t.Fatalf("%+v, want it queued behind %s and before the younger request", a, old.Token)
	}
	p.wantGranted(old)
	if a := p.relinquish(old); !a.Held {
		t.Fatalf("%+v: the oldest request relinquished", a)
	}
	p.releaseVote(old, farFuture)
	p.wantGranted(mid)
}

func voteHeartbeat(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	holder := p.newVoteRequest("n", 1)
	holder.TTL = 2 * driver.WaiterTTL
	holder.Vote.Fence = 1
	p.mustAcquire(holder)
	dead, live := p.newVoteRequest("n", farFuture), p.newVoteRequest("n", farFuture+1) // both tickets are in the future by any clock
	p.mustQueue(dead, 1)
	p.mustQueue(live, 2)
	ancient := p.newVoteRequest("n", 2)
	for range 4 { // the live ones send more heartbeats than they have to
		time.Sleep(driver.WaiterTTL / 3)
		p.acquire(live)
		p.mustQueue(ancient, 1)
	}
	p.releaseVote(holder, farFuture)
	p.wantGranted(ancient)
	p.releaseVote(ancient, farFuture)
	p.wantGranted(live)
}

func voteCancel(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	first, second, third := p.newVoteRequest("n", 1), p.newVoteRequest("n", 2), p.newVoteRequest("n", 3)
	p.mustAcquire(first)
	p.mustQueue(second, 1)
	p.mustQueue(third, 2)
	for _, r := range []driver.AcquireRequest{second, first} {
		if err := s.Cancel(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	p.wantGranted(third)
	p.releaseVote(third, farFuture)
	p.wantHolder("n", "")
}

func voteReaders(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	writer := func(ticket uint64) driver.AcquireRequest {
		r := p.newVoteRequest("n", ticket)
		r.Weight, r.Limit = driver.Unlimited, driver.Unlimited
		return r
	}
	reader := func(ticket uint64) driver.AcquireRequest {
		r := p.newVoteRequest("n", ticket)
		r.Weight, r.Limit = 1, driver.Unlimited
		return r
	}
	first, second := writer(1), writer(30)
	p.mustAcquire(first)
	one, two, late := reader(10), reader(20), reader(40)
	p.mustQueue(late, 1)
	p.mustQueue(second, 1)
	p.mustQueue(two, 1)
	p.mustQueue(one, 1)
	p.releaseVote(first, farFuture)
	p.wantGranted(one)
	p.wantGranted(two)
	p.wantNoEvent(0)
	p.releaseVote(one, farFuture)
	p.releaseVote(two, farFuture)
	p.wantGranted(second)
	if a := p.relinquish(second); !a.Held {
		t.Fatalf("%+v: the writer relinquished to a younger reader", a)
	}
	p.releaseVote(second, farFuture)
	p.wantGranted(late)
}

func voteResize(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	r := p.newVoteRequest("n", 1)
	r.Weight, r.Limit = 1, driver.Unlimited
	p.mustAcquire(r)
	for i, weight := range []int{driver.Unlimited, 1} {
		r.Weight = weight
		r.Until = time.Now().Add(operationTimeout)
		least := uint64(farFuture + 1000*(i+1))
		r.Vote = &driver.Vote{Fence: least}
		if a, err := s.Resize(t.Context(), r); err != nil || !a.Held || a.Fence != least {
			t.Fatalf("resize to %d: %+v, %v, want fence %d", weight, a, err, least)
		}
	}
}

func withoutVote(t *testing.T, s *driver.Full) {
	p, other := newClient(t, s), newClient(t, s)
	plain, voter, last := other.newRequest("n"), p.newVoteRequest("n", farFuture), other.newRequest("n")
	fence := other.mustAcquire(plain).Fence
	p.mustQueue(voter, 1)
	if a := other.acquire(last); a.Held || a.Ticket == 0 { // its ticket is from the current time. Its position counts all entries as equal
		t.Fatalf("%+v, want it queued", a)
	}
	other.mustRelease(plain, fence)
	fence = other.wantGranted(last).Fence
	other.mustRelease(last, fence)
	p.wantServed(voter)
	p.wantHolder("n", voter.Token)
	other.mustQueue(plain, 1)
	p.releaseVote(voter, farFuture)
	other.wantGranted(plain)
}
