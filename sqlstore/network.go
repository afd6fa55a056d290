package sqlstore

import (
	"time"

	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/tlsadvice"
)

// ExplainTLS returns a TLS error with advice if no retry can change it. It returns nil for other
// errors.
func ExplainTLS(err error) error { return tlsadvice.Explain(err) }

// A Backoff is the pauses between attempts to reach a server. They grow with the outage, at most
// double with each failure, and have jitter. It is not safe for concurrent use.
type Backoff struct{ pauses load.Backoff }

// NewBackoff returns the pauses for an outage that has not begun. A pause is at least the shortest
// and at most the longest, and otherwise a part of the outage: 8 is an eighth.
func NewBackoff(shortest, longest time.Duration, part int) *Backoff {
	return &Backoff{load.Backoff{Shortest: shortest, Longest: longest, Part: part}}
}

// Next records a failure, and returns the pause before the next attempt.
func (b *Backoff) Next(now time.Time) time.Duration { return b.pauses.Next(now) }

// Reset records the end of the outage.
func (b *Backoff) Reset() { b.pauses.Reset() }
