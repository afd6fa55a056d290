// Package bootclock measures time as deadlines need it: also while the machine is suspended. It is
// for store authors.
package bootclock

import (
	"sync/atomic"
	"time"
)

// A Clock measures the time since its creation, with the time for which the machine was
// suspended. Go's monotonic clock may stand still during a suspend; TTLs at a store do
// not. Deadlines are in this time. Make a Clock with New. It is safe for concurrent use.
type Clock struct {
	start           time.Time
	suspended       func() time.Duration // total suspend time since the machine booted
	suspendedBefore time.Duration        // the result of suspended at start
	suspendedFor    atomic.Int64         // suspend time since start, in ns
	wallOffset      atomic.Int64         // the wall clock's lead over the monotonic clock, in ns
}

// New returns a clock that starts now.
func New() *Clock { return newClock(suspended) }

// newClock returns a clock with a measure of suspends. A preemption between suspended's two clock
// readings makes its result too small, so the largest of three is used.
func newClock(suspended func() time.Duration) *Clock {
	return &Clock{start: time.Now(), suspended: suspended, suspendedBefore: max(suspended(), suspended(), suspended())}
}

// Now returns the time since the start, including the suspends detected by Check.
func (c *Clock) Now() time.Duration {
	return time.Since(c.start) + time.Duration(c.suspendedFor.Load())
}

// Check returns the time since the start, after a check whether the machine was suspended.
// Deadlines are computed from it and compared with it.
func (c *Clock) Check() time.Duration {
	// Two clocks cannot be read at the same instant: a smaller difference is no
	// suspension.
	const noise = time.Millisecond
	now := time.Now()
	offset, jumped := c.wallClockJumped(now)
	if !jumped {
		return now.Sub(c.start) + time.Duration(c.suspendedFor.Load())
	}
	total := int64(c.suspended() - c.suspendedBefore)
	for before := c.suspendedFor.Load(); time.Duration(total-before) >= noise; before = c.suspendedFor.Load() {
		if c.suspendedFor.CompareAndSwap(before, total) {
			break
		}
	}
	c.wallOffset.Store(offset) // last: until then, concurrent calls also ask the kernel
	return c.Now()
}

// wallClockJumped reports whether the wall clock has moved against the monotonic clock since Check
// last asked the kernel. Then the machine was suspended, or the clock was set. Only the kernel can
// distinguish the two. Asking it takes ten times as long, and each lock runs this check.
func (c *Clock) wallClockJumped(now time.Time) (offset int64, jumped bool) {
	const noise = 300 * time.Microsecond
	offset = now.UnixNano() - int64(now.Sub(c.start))
	d := time.Duration(offset - c.wallOffset.Load())
	return offset, d <= -noise || noise <= d
}
