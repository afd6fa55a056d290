package redisstore

import (
	"errors"
	"sync"
	"sync/atomic"
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
	guessed  *atomic.Bool // set if what is known is supposed, and turns out to be wrong
	low, top int64        // µs: server − local
	learnt   time.Time    // when they were last true
}

const (
	fresh = 15 * time.Second      // within this no clock has moved much, unless it was set
	alike = 50 * time.Millisecond // servers whose clocks differ by less may stand for each other
)

// guess returns a clock that supposes of another server what this one knows, unless that
// is old. wrong is set if it was wrong.
func (c *clock) guess(wrong *atomic.Bool) *clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learnt) > fresh {
		return &clock{epoch: c.epoch}
	}
	return &clock{epoch: c.epoch, known: true, guessed: wrong, low: c.low, top: c.top, learnt: c.learnt}
}

// doubt forgets all if an error may mean that another server answers from now on. One
// that was only slow is the same.
func (c *clock) observeError(err error) {
	if err == nil {
		return
	}
	var server ServerError
	if timedOut(err) || errors.Is(err, ErrUnsent) || errors.As(err, &server) && !server.transient() {
		return
	}
	c.forget()
}

func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

func (c *clock) local(t time.Time) int64 { return t.Sub(c.epoch).Microseconds() }

func newClock() *clock { return &clock{epoch: time.Now()} }

// learn narrows the bounds by one reply. Bounds that contradict those before mean
// that one of the clocks was set: the old ones are forgotten.
func (c *clock) learn(sent, received time.Time, server int64) {
	low, top := server-c.local(received)-1, server-c.local(sent)+1
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong := c.guessed; wrong != nil {
		if away := alike.Microseconds(); low > c.top+away || top < c.low-away {
			wrong.Store(true)
		}
		c.guessed, c.known = nil, false
	}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learnt) > fresh {
		return 0
	}
	return c.local(t) + c.low
}
