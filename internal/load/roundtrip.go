package load

import (
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/clock"
)

// A RoundTrip estimates how long the store takes to answer: the last duration, or half the previous
// estimate if that is longer. Repeating a request before its answer can arrive would only fill a
// slow link. The zero RoundTrip has no estimate. It is safe for concurrent use.
type RoundTrip struct{ recent atomic.Int64 }

// Observe records the duration until an answer, or a duration without an answer. If two calls are
// concurrent, either may be ignored.
func (t *RoundTrip) Observe(d time.Duration) { t.recent.Store(max(int64(d), t.recent.Load()/2)) }

// Twice returns the earliest useful time for a retry.
func (t *RoundTrip) Twice() time.Duration { return clock.Times(2, time.Duration(t.recent.Load())) }

// AttemptDeadline returns the deadline for an attempt that begins now, so that an operation with
// the given end has time for a second attempt on another connection. This is after half the
// remaining time, or later if the store answers slowly.
func (t *RoundTrip) AttemptDeadline(now, end time.Time) time.Time {
	const least = 50 * time.Millisecond
	left := end.Sub(now)
	first := max(left/2, t.Twice())
	if left < least || left-first < max(least/2, t.Twice()/2) {
		return end
	}
	return end.Add(first - left)
}
