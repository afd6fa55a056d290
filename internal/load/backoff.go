package load

import (
	"math/rand/v2"
	"time"
)

// A Backoff is the pause between attempts to reach a server. It is a share of the time since
// the outage began, and at most doubles with each failure. So it grows, and after a short outage
// or few failures the next attempt comes soon. The number of attempts grows with the logarithm of
// the outage, until the pause is the longest. The pause has jitter, because many clients notice an
// outage at the same time.
//
// It is not safe for concurrent use.
type Backoff struct {
	Shortest, Longest time.Duration
	Part              int // the pause is this part of the outage: 8 is an eighth

	since    time.Time // of the outage; zero if there is none
	failures int       // in it
	resume   time.Time // end of the last pause
}

// forgetful is how long after a pause a failure begins another outage. An attempt that takes so
// long is its own pause.
const forgetful = 500 * time.Millisecond

// Next records a failure and returns the pause before the next attempt: a random one between
// the half and the whole of what the outage demands.
func (b *Backoff) Next(now time.Time) time.Duration {
	if now.Sub(b.resume) > forgetful { // it is no burst of failures
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

// Reset records that the outage has ended.
func (b *Backoff) Reset() { b.since, b.failures = time.Time{}, 0 }

// Failing reports whether there was a failure since the last Reset.
func (b *Backoff) Failing() bool { return !b.since.IsZero() }
