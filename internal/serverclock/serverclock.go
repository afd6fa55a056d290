// Package serverclock estimates the clock of a server from its replies. It never compares
// the wall clocks of two machines.
package serverclock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock has bounds of a server's clock. Server times are µs since 1970, local ones are
// monotonic. The bounds are of their difference: the server read its clock after a request
// was sent and before the reply arrived. A Clock is safe for concurrent use.
type Clock struct {
	epoch time.Time

	mu       sync.Mutex
	known    bool
	guessed  *atomic.Bool // not nil if the bounds are a guess; set if they turn out to be wrong
	low, top int64        // µs: server − local
	learned  time.Time    // when the bounds were last confirmed
}

const (
	maxBoundAge    = 15 * time.Second      // within this no clock has drifted much, unless it was set
	clockTolerance = 50 * time.Millisecond // clocks that differ by less are interchangeable
)

// Guess returns a clock for another server with the bounds of this one, or an empty one
// if they are old. wrong is set later if the guess was wrong.
func (c *Clock) Guess(wrong *atomic.Bool) *Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learned) > maxBoundAge {
		return &Clock{epoch: c.epoch}
	}
	return &Clock{epoch: c.epoch, known: true, guessed: wrong, low: c.low, top: c.top, learned: c.learned}
}

// Reset forgets the bounds: another server may reply from now on.
func (c *Clock) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

func (c *Clock) local(t time.Time) int64 { return t.Sub(c.epoch).Microseconds() }

// New returns a clock without bounds.
func New() *Clock { return &Clock{epoch: time.Now()} }

// Learn narrows the bounds by one reply. Bounds that contradict the old ones replace
// them: a clock was set.
func (c *Clock) Learn(sent, received time.Time, server int64) {
	low, top := server-c.local(received)-1, server-c.local(sent)+1
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong := c.guessed; wrong != nil {
		if away := clockTolerance.Microseconds(); low > c.top+away || top < c.low-away {
			wrong.Store(true)
		}
		c.guessed, c.known = nil, false
	}
	if c.known && low <= c.top && top >= c.low {
		low, top = max(low, c.low), min(top, c.top)
	}
	c.known, c.low, c.top, c.learned = true, low, top, received
}

// Latest returns the server's time at a local instant, by the upper bound; zero if
// nothing is known.
func (c *Clock) Latest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	return c.local(t) + c.top
}

// Age returns the time since an instant of the server's clock, or zero if nothing is known.
func (c *Clock) Age(sent int64) time.Duration {
	return time.Duration(max(c.Earliest(time.Now())-sent, 0)) * time.Microsecond
}

// Earliest returns the server's time at a local instant, by the lower bound; zero if
// nothing is known, or only old bounds: the server's clock may have been set since.
func (c *Clock) Earliest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learned) > maxBoundAge {
		return 0
	}
	return c.local(t) + c.low
}
