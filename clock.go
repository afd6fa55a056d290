package dibs

import (
	"sync/atomic"
	"time"
)

// A clock measures the time since its creation, with the time for which the machine was
// suspended. Go's monotonic clock may stand still during a suspend; TTLs at a store do
// not. Deadlines are in this time. A clock is safe for concurrent use.
type clock struct {
	start           time.Time
	suspended       func() time.Duration // how long the machine has been suspended since it booted
	suspendedBefore time.Duration        // the result of suspended at start
	suspendedFor    atomic.Int64         // how long the machine has been suspended since start, in ns
	wallOffset      atomic.Int64         // how far the wall clock was ahead of the monotonic one, in ns
}

// newClock returns a clock that starts now. A preemption between the two clock readings of
// suspended makes its result too small, so the largest of three is used.
func newClock(suspended func() time.Duration) *clock {
	return &clock{start: time.Now(), suspended: suspended, suspendedBefore: max(suspended(), suspended(), suspended())}
}

// now returns the time as far as check has detected suspends.
func (c *clock) now() time.Duration {
	return time.Since(c.start) + time.Duration(c.suspendedFor.Load())
}

// at returns a time of this process in the time of the clock.
func (c *clock) at(t time.Time) time.Duration { return sum(c.now(), time.Until(t)) }

// check returns now, after a check whether the machine was suspended. Deadlines are
// computed from it and compared with it.
func (c *clock) check() time.Duration {
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
	return c.now()
}

// wallClockJumped reports whether the wall clock has moved against the monotonic one
// since check last asked the kernel. Then the machine was suspended, or the clock was set.
// Only the kernel can distinguish the two; to ask it takes ten times as long, and each
// lock runs this check.
func (c *clock) wallClockJumped(now time.Time) (offset int64, jumped bool) {
	const noise = 300 * time.Microsecond
	offset = now.UnixNano() - int64(now.Sub(c.start))
	d := time.Duration(offset - c.wallOffset.Load())
	return offset, d <= -noise || noise <= d
}
