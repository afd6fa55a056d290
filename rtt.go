package dibs

import (
	"sync/atomic"
	"time"
)

// A trip is how long the store takes to answer: the last time, or half of what it was
// before if that is longer. A request that is repeated before it could have been answered
// only fills a slow link.
type roundTrip struct{ recent atomic.Int64 }

// took notes the time that one answer took, or after which there was none. Of two at
// once one may be forgotten.
func (t *roundTrip) observe(d time.Duration) { t.recent.Store(max(int64(d), t.recent.Load()/2)) }

// twice is when it makes sense to ask again.
func (t *roundTrip) twice() time.Duration { return time.Duration(2 * t.recent.Load()) }

// share is when one attempt must end so that an operation that ends at end has time for
// another one, on another connection: half of what is left, or more if the store answers
// slowly.
func (t *roundTrip) attemptDeadline(end time.Time) time.Time {
	const least = 50 * time.Millisecond
	left := time.Until(end)
	first := max(left/2, t.twice())
	if left < least || left-first < max(least/2, t.twice()/2) {
		return end
	}
	return end.Add(first - left)
}
