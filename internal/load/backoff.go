package load

import (
	"math/rand/v2"
	"time"
)

// A Backoff returns pauses between attempts to reach a server. The pause is a share of the time
// since the outage began, and at most doubles with each failure. So the next attempt comes soon
// after a short outage or few failures. The number of attempts grows with the logarithm of the
// outage, until the pause reaches its maximum. The pause has jitter, because many clients notice an
// outage at the same time.
//
// It is not safe for concurrent use.
type Backoff struct {
	Shortest, Longest time.Duration
	Part              int // the pause is the outage divided by Part: 8 means an eighth

	since    time.Time // start of the outage; zero if there is none
	failures int       // in it
	resume   time.Time // end of the last pause
}

// forgetful is how long after a pause a failure starts a new outage. An attempt that takes this
// long is its own pause.
const forgetful = 500 * time.Millisecond

// Next records a failure and returns the pause before the next attempt: a random value between half
// the required pause and all of it.
func (b *Backoff) Next(now time.Time) time.Duration {
	if now.Sub(b.resume) > forgetful { // not a burst of failures
		b.Reset()
	}
	if b.since.IsZero() {
		b.since = now
	}
	pause := min(max(now.Sub(b.since)/time.Duration(b.Part), b.Shortest), b.Shortest<<min(b.failures, 30), b.Longest)
	b.failures++
	pause = pause/2 + rand.N(pause/2+1)
	b.resume = now.Add(pause)
	return pause
}

// Reset records the end of the outage.
func (b *Backoff) Reset() { b.since, b.failures = time.Time{}, 0 }

// Failing reports whether there was a failure since the last Reset.
func (b *Backoff) Failing() bool { return !b.since.IsZero() }
