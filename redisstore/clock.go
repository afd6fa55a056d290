package redisstore

import (
	"sync"
	"time"
)

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

// guess returns a clock that supposes of another server what this one knows.
func (c *clock) guess() *clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &clock{epoch: c.epoch, known: c.known, low: c.low, top: c.top, learnt: c.learnt}
}

func (c *clock) local(t time.Time) int64 { return t.Sub(c.epoch).Microseconds() }

func newClock() *clock { return &clock{epoch: time.Now()} }

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

// earliest returns the server's time at a local instant, not too late; zero if nothing
// is known, or nothing new: the server's clock may have been set since.
func (c *clock) earliest(t time.Time) int64 {
	const fresh = 15 * time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learnt) > fresh {
		return 0
	}
	return c.local(t) + c.low
}
