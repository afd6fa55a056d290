package dibs

import (
	"sync/atomic"
	"time"
)

// A roundTrip estimates how long the store takes to answer: the last time, or half of the
// previous estimate if that is longer. A request that is repeated before its answer could
// have arrived only fills a slow link.
type roundTrip struct{ recent atomic.Int64 }

// observe records the time of one answer, or the time after which there was none. Of two
// concurrent calls one may be lost.
func (t *roundTrip) observe(d time.Duration) { t.recent.Store(max(int64(d), t.recent.Load()/2)) }

// twice returns the earliest useful time for a retry.
func (t *roundTrip) twice() time.Duration { return times(2, time.Duration(t.recent.Load())) }

// attemptDeadline returns when one attempt must end, so that an operation that ends at
// end has time for a second one, on another connection. That is after half of the
// remaining time, or later if the store answers slowly.
func (t *roundTrip) attemptDeadline(end time.Time) time.Time {
	const least = 50 * time.Millisecond
	left := time.Until(end)
	first := max(left/2, t.twice())
	if left < least || left-first < max(least/2, t.twice()/2) {
		return end
	}
	return end.Add(first - left)
}
