package pipeline

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A clock estimates the server's clock from its replies. Server times are µs since 1970;
// local ones are monotonic. It never compares wall clocks of two machines. It only
// derives bounds of their difference, because the server read its clock after a request
// was sent and before the reply arrived.
type clock struct {
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

// guess returns a clock for another server with the bounds of this one, or an empty one
// if they are old. wrong is set later if the guess was wrong.
func (c *clock) guess(wrong *atomic.Bool) *clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learned) > maxBoundAge {
		return &clock{epoch: c.epoch}
	}
	return &clock{epoch: c.epoch, known: true, guessed: wrong, low: c.low, top: c.top, learned: c.learned}
}

// observeError forgets the bounds if the error may mean that another server replies from
// now on. A timeout does not mean that.
func (c *clock) observeError(err error) {
	if err == nil {
		return
	}
	var server redisconn.ServerError
	if redisconn.IsTimeout(err) || errors.Is(err, redisconn.ErrUnsent) || errors.As(err, &server) && !server.Transient() {
		return
	}
	c.reset()
}

func (c *clock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

func (c *clock) local(t time.Time) int64 { return t.Sub(c.epoch).Microseconds() }

func newClock() *clock { return &clock{epoch: time.Now()} }

// learn narrows the bounds by one reply. Bounds that contradict the old ones replace
// them: a clock was set.
func (c *clock) learn(sent, received time.Time, server int64) {
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

// latest returns the server's time at a local instant, by the upper bound; zero if
// nothing is known.
func (c *clock) latest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	return c.local(t) + c.top
}

// earliest returns the server's time at a local instant, by the lower bound; zero if
// nothing is known, or only old bounds: the server's clock may have been set since.
func (c *clock) earliest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.learned) > maxBoundAge {
		return 0
	}
	return c.local(t) + c.low
}
