package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// BallotCases returns the laws of a store that can be a node of a quorum.
func BallotCases() []Case {
	return []Case{
		{"ballot order", "who comes with a ballot is served by its ticket, whenever it came", ballotOrder},
		{"ballot identity", "the answer to a ballot, and the event of its grant, name the store", ballotIdentity},
		{"ballot fence", "a ballot's fence is granted as it is, or a larger one if it has to be; who waits is told the largest so far", ballotFence},
		{"ballot fence unknown", "a ballot without a fence is granted one all the same", ballotWithoutFence},
		{"ballot yield", "who yields gives the name to an older claim that waits, and keeps it from younger ones", ballotYield},
		{"ballot life", "a place with a ticket lives by its heartbeats, whatever clock the ticket is from", ballotLife},
		{"ballot abandon", "an abandoned ballot leaves nothing, and the name is handed on", ballotAbandon},
		{"ballot readers", "readers that stand next to each other by their tickets enter together, and wait behind an older writer", ballotReaders},
		{"ballot reweigh", "who holds more or less has a fence that is not below the ballot's", ballotReweigh},
		{"no ballot", "who comes without a ballot has to do with the same queue: who waits with one is served, or told to ask", noBallot},
	}
}

// RunBallots runs BallotCases, each on a store of its own, side by side.
func RunBallots(t *testing.T, open func(t *testing.T) driver.Store) { run(t, BallotCases(), open) }

// RunBallotsInBubble runs BallotCases, each in a testing/synctest bubble.
func RunBallotsInBubble(t *testing.T, open func(t *testing.T) driver.Store) {
	runInBubble(t, BallotCases(), open)
}

// ballot returns a new claim with a ballot. Its fence is far ahead of any clock's.
func (p *party) ballot(name string, ticket uint64) driver.AcquireRequest {
	c := p.claim(name)
	c.Vote = &driver.VoteRequest{Ticket: ticket, Fence: ahead + p.seq}
	return c
}

const ahead = 3_000_000_000_000_000 // µs: in 2065

func yields(c driver.AcquireRequest) driver.AcquireRequest {
	b := *c.Vote
	b.Relinquish = true
	c.Vote = &b
	return c
}

// give releases with a ballot.
func (p *party) give(c driver.AcquireRequest, fence uint64) {
	p.t.Helper()
	r := driver.ReleaseRequest{Name: c.Name, Token: c.Token, Until: time.Now().Add(patience), Vote: &driver.VoteRequest{Fence: fence}}
	if freed, err := p.s.Release(p.t.Context(), r); !freed || err != nil {
		p.t.Fatalf("release %q: %v, %v", c.Name, freed, err)
	}
}

func ballotOrder(t *testing.T, s driver.Store) {
	p := join(t, s)
	first := p.ballot("n", 50)
	p.take(first)
	tickets := []uint64{300, 100, 200, ahead, 1}
	claims := make(map[uint64]driver.AcquireRequest)
	for i, ticket := range tickets {
		claims[ticket] = p.ballot("n", ticket)
		before := 1
		for _, other := range tickets[:i] {
			if other < ticket {
				before++
			}
		}
		if a := p.wait(claims[ticket], before); a.Ticket != ticket {
			t.Fatalf("ticket %d, want %d", a.Ticket, ticket)
		}
	}
	slices.Sort(tickets)
	for i, ticket := range tickets {
		least := uint64(ahead + 100*(i+1))
		p.give(first, least)
		first = claims[ticket]
		if e := p.granted(first); e.Ticket != ticket || e.Fence != least {
			t.Fatalf("event %+v, want ticket %d and fence %d", e, ticket, least)
		}
	}
}

func ballotIdentity(t *testing.T, s driver.Store) {
	p := join(t, s)
	first, second := p.ballot("n", 1), p.ballot("n", 2)
	id := p.take(first).Node
	if id == "" || p.take(first).Node != id || p.wait(second, 1).Node != id {
		t.Fatalf("store %q, and another one at the next question", id)
	}
	p.give(first, ahead)
	if e := p.granted(second); e.Node != id {
		t.Fatalf("event %+v, want store %q", e, id)
	}
}

func ballotFence(t *testing.T, s driver.Store) {
	p := join(t, s)
	c := p.ballot("n", 1)
	if a := p.take(c); a.Fence != c.Vote.Fence {
		t.Fatalf("fence %d, want the proposed one, %d", a.Fence, c.Vote.Fence)
	}
	again := p.take(c)
	if again.Fence <= c.Vote.Fence {
		t.Fatalf("fence %d at the second asking, want a larger one than %d", again.Fence, c.Vote.Fence)
	}
	low := p.ballot("n", 2)
	low.Vote.Fence = 1
	if a := p.wait(low, 1); a.Fence < again.Fence {
		t.Fatalf("largest fence %d, want %d", a.Fence, again.Fence)
	}
	p.give(c, 1)
	if e := p.granted(low); e.Fence <= again.Fence {
		t.Fatalf("fence %d after %d", e.Fence, again.Fence)
	}
}

func ballotWithoutFence(t *testing.T, s driver.Store) {
	p := join(t, s)
	first, second := p.ballot("n", 1), p.ballot("n", 2)
	first.Vote.Fence, second.Vote.Fence = 0, 0
	fence := p.take(first).Fence
	p.wait(second, 1)
	p.give(first, 0)
	if e := p.granted(second); fence == 0 || e.Fence <= fence {
		t.Fatalf("fence %d after %d", e.Fence, fence)
	}
}

func ballotYield(t *testing.T, s driver.Store) {
	p := join(t, s)
	old, young, mid := p.ballot("n", 10), p.ballot("n", 30), p.ballot("n", 20)
	p.take(mid)
	if a := p.ask(yields(mid)); !a.Held {
		t.Fatalf("%+v: it yielded to nobody", a)
	}
	p.wait(young, 1)
	if a := p.ask(yields(mid)); !a.Held {
		t.Fatalf("%+v: it yielded to a younger one", a)
	}
	p.silent(0)
	p.wait(old, 1)
	if a := p.ask(yields(mid)); a.Held || a.Holder != old.Token || a.Position != 1 || a.Ticket != 20 {
		t.Fatalf("%+v, want it to wait behind %s, before the younger one", a, old.Token)
	}
	p.granted(old)
	if a := p.ask(yields(old)); !a.Held {
		t.Fatalf("%+v: the oldest yielded", a)
	}
	p.give(old, ahead)
	p.granted(mid)
}

func ballotLife(t *testing.T, s driver.Store) {
	p := join(t, s)
	holder := p.claim("n")
	holder.TTL = 2 * driver.WaiterTTL
	holder.Vote = &driver.VoteRequest{Ticket: 1, Fence: 1}
	p.take(holder)
	dead, live := p.ballot("n", ahead), p.ballot("n", ahead+1) // neither has come yet, by any clock
	p.wait(dead, 1)
	p.wait(live, 2)
	ancient := p.ballot("n", 2)
	time.Sleep(driver.WaiterTTL * 3 / 4)
	p.wait(live, 2)
	p.wait(ancient, 1)
	time.Sleep(driver.WaiterTTL * 3 / 4)
	p.give(holder, ahead)
	p.granted(ancient)
	p.give(ancient, ahead)
	p.granted(live)
}

func ballotAbandon(t *testing.T, s driver.Store) {
	p := join(t, s)
	first, second, third := p.ballot("n", 1), p.ballot("n", 2), p.ballot("n", 3)
	p.take(first)
	p.wait(second, 1)
	p.wait(third, 2)
	for _, c := range []driver.AcquireRequest{second, first} {
		if err := s.Cancel(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	p.granted(third)
	p.give(third, ahead)
	p.wantHolder("n", "")
}

func ballotReaders(t *testing.T, s driver.Store) {
	p := join(t, s)
	writer := func(ticket uint64) driver.AcquireRequest {
		c := p.ballot("n", ticket)
		c.Weight, c.Limit = driver.Unlimited, driver.Unlimited
		return c
	}
	reader := func(ticket uint64) driver.AcquireRequest {
		c := p.ballot("n", ticket)
		c.Weight, c.Limit = 1, driver.Unlimited
		return c
	}
	first, second := writer(1), writer(30)
	p.take(first)
	one, two, late := reader(10), reader(20), reader(40)
	p.wait(late, 1)
	p.wait(second, 1)
	p.wait(two, 1)
	p.wait(one, 1)
	p.give(first, ahead)
	p.granted(one)
	p.granted(two)
	p.silent(0)
	p.give(one, ahead)
	p.give(two, ahead)
	p.granted(second)
	if a := p.ask(yields(second)); !a.Held {
		t.Fatalf("%+v: the writer yielded to a younger reader", a)
	}
	p.give(second, ahead)
	p.granted(late)
}

func ballotReweigh(t *testing.T, s driver.Store) {
	p := join(t, s)
	c := p.ballot("n", 1)
	c.Weight, c.Limit = 1, driver.Unlimited
	p.take(c)
	for i, weight := range []int{driver.Unlimited, 1} {
		c.Weight = weight
		c.Until = time.Now().Add(patience)
		least := uint64(ahead + 1000*(i+1))
		c.Vote = &driver.VoteRequest{Fence: least}
		if a, err := s.Resize(t.Context(), c); err != nil || !a.Held || a.Fence != least {
			t.Fatalf("reweigh to %d: %+v, %v, want fence %d", weight, a, err, least)
		}
	}
}

func noBallot(t *testing.T, s driver.Store) {
	p, other := join(t, s), join(t, s)
	plain, voter, last := other.claim("n"), p.ballot("n", ahead), other.claim("n")
	fence := other.take(plain).Fence
	p.wait(voter, 1)
	if a := other.ask(last); a.Held || a.Ticket == 0 { // a ticket of today. Its position is reckoned as if all were
		t.Fatalf("%+v, want it to wait", a)
	}
	other.free(plain, fence)
	fence = other.granted(last).Fence
	other.free(last, fence)
	p.served(voter)
	p.wantHolder("n", voter.Token)
	other.wait(plain, 1)
	p.give(voter, ahead)
	other.granted(plain)
}
