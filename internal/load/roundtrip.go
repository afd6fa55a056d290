package load

import (
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/clock"
)

// A RoundTrip estimates how long the store takes to answer: the last time, or half of the
// previous estimate if that is longer. A request that is repeated before its answer could
// have arrived only fills a slow link. The zero RoundTrip knows of no answer. It is safe for
// concurrent use.
type RoundTrip struct{ recent atomic.Int64 }

// Observe records the time of one answer, or the time after which there was none. Of two
// concurrent calls one may be lost.
func (t *RoundTrip) Observe(d time.Duration) { t.recent.Store(max(int64(d), t.recent.Load()/2)) }

// Twice returns the earliest useful time for a retry.
func (t *RoundTrip) Twice() time.Duration { return clock.Times(2, time.Duration(t.recent.Load())) }

// AttemptDeadline returns when one attempt that begins now must end, so that an operation that
// ends at end has time for a second one, on another connection. That is after half of the
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
