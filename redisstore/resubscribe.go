package redisstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// subscribePauses are the pauses between a client's attempts to subscribe. A server that is
// back after a short outage is detected within 50 ms. Leases that it lost are then reported
// at once, and waiters retry. The pauses grow with the outage, because each attempt opens a
// connection, and many clients may share the server. They have jitter, so that these do not
// attempt at the same time.
type subscribePauses struct {
	tries int
	since time.Time // of the outage
}

const (
	soonTries  = 5                      // at the beginning of an outage
	soonPause  = 10 * time.Millisecond  // between them
	leastPause = 50 * time.Millisecond  // after them
	mostPause  = time.Second            // in a long outage
	idlePause  = 10 * time.Second       // of a client that needs no events
	idleCheck  = 100 * time.Millisecond // how often it is asked whether it does
	lasting    = time.Second            // how long a subscription lasts that ends the outage
)

// ended records the end of an attempt. lasted is how long it was subscribed.
func (r *subscribePauses) ended(now time.Time, lasted time.Duration) {
	if lasted >= lasting || r.since.IsZero() {
		r.tries, r.since = 0, now
	}
}

// next returns the pause before the next attempt.
func (r *subscribePauses) next(now time.Time) time.Duration {
	r.tries++
	if r.tries <= soonTries {
		return soonPause
	}
	longest := min(max(now.Sub(r.since)/8, leastPause), mostPause)
	return longest/2 + rand.N(longest/2)
}

// wait waits until the next attempt is due, or returns false if ctx ends first. A client that
// holds and awaits nothing waits longer, until it does.
func (r *subscribePauses) wait(ctx context.Context, busy func() bool) bool {
	begin := time.Now()
	for pause := r.next(begin); ; pause = idleCheck {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
		if busy() || time.Since(begin) >= idlePause {
			return true
		}
	}
}
