package redisstore

import (
	"sync"
	"time"
)

// clocks are those of the servers behind one store. Where it shards, nobody says
// which slot is whose: each slot has its own, and begins with what the last answer
// told of any. A server whose clock is far from that is found out by one void claim.
type clocks struct {
	one clock // of a server that does not shard, and the guess of one that does

	mu     sync.Mutex
	bySlot map[int]*clock // at most one for each slot
}

func newClocks() *clocks {
	return &clocks{one: clock{epoch: time.Now()}, bySlot: make(map[int]*clock)}
}

// anywhere is the slot of a key on a server that does not shard.
const anywhere = -1

// of returns the clock of the server that has a slot.
func (c *clocks) of(slot int) *clock {
	if slot == anywhere {
		return &c.one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.bySlot[slot]
	if found == nil {
		found = c.one.guess()
		c.bySlot[slot] = found
	}
	return found
}

// learn takes what a reply from the server that has a slot tells.
func (c *clocks) learn(slot int, sent, received time.Time, server int64) {
	at := c.of(slot)
	at.learn(sent, received, server)
	if at != &c.one {
		c.one.follow(at)
	}
}

// A clock knows the server's clock by what its replies tell. Server times are µs
// since 1970; local ones are monotonic. It compares no two machines' wall clocks:
// it only knows between which bounds their difference lies, because the server
// looked at its clock after a request was sent and before the reply came.
type clock struct {
	epoch time.Time

	mu       sync.Mutex
	known    bool
	low, top int64     // µs: server − local
	learnt   time.Time // when they were last true
}

// guess returns a clock that supposes the same of another server.
func (c *clock) guess() *clock {
	g := &clock{epoch: c.epoch}
	g.follow(c)
	return g
}

// follow takes over what another clock knows.
func (c *clock) follow(other *clock) {
	other.mu.Lock()
	known, low, top, learnt := other.known, other.low, other.top, other.learnt
	other.mu.Unlock()
	c.mu.Lock()
	c.known, c.low, c.top, c.learnt = known, low, top, learnt
	c.mu.Unlock()
}

func (c *clock) local(t time.Time) int64 { return t.Sub(c.epoch).Microseconds() }

// learn narrows the bounds by one reply. Bounds that contradict those before mean
// that one of the clocks was set: the old ones are forgotten.
func (c *clock) learn(sent, received time.Time, server int64) {
	low, top := server-c.local(received)-1, server-c.local(sent)+1
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && low <= c.top && top >= c.low {
		low, top = max(low, c.low), min(top, c.top)
	}
	c.known, c.low, c.top, c.learnt = true, low, top, received
}

// latest returns the server's time at a local instant, not too early; zero if
// nothing is known yet.
func (c *clock) latest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	return c.local(t) + c.top
}

// earliest returns the server's time now, not too late; zero if nothing is known, or
// nothing new: the server's clock may have been set since.
func (c *clock) earliest() int64 {
	const fresh = 15 * time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learnt) > fresh {
		return 0
	}
	return c.local(time.Now()) + c.low
}
