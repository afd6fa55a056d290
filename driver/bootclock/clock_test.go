package bootclock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The kernel should be asked about suspends only at the start and after the wall clock moved
// against the monotonic clock, not for each lock.
func TestBootClockIsReadWhenTheWallClockMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(suspended)
		reads := 0
		c.suspended = func() time.Duration { reads++; return c.suspendedBefore }
		wantAsked := func(want int, when string) {
			t.Helper()
			if c.Check(); reads != want {
				t.Errorf("%d reads %s, want %d", reads, when, want)
			}
			reads = 0
		}
		wantAsked(1, "at first")
		time.Sleep(time.Hour)
		wantAsked(0, "though both clocks went on alike")
		for _, moved := range []time.Duration{time.Millisecond, -time.Second, time.Hour} {
			c.wallOffset.Add(int64(moved))
			wantAsked(1, "after the wall clock has moved by "+moved.String())
			wantAsked(0, "once more")
		}
	})
}

// No goroutine reads the time before a suspension is counted, while another is about to
// count it.
func TestSuspensionIsSeenByAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(suspended)
		c.Check()
		const night = 8 * time.Hour
		var inside atomic.Bool
		c.suspended = func() time.Duration {
			if inside.CompareAndSwap(false, true) { // another goroutine reads the clock now
				if now := c.Check(); now < night {
					t.Errorf("now is %v after a suspension of %v", now, night)
				}
			}
			return c.suspendedBefore + night
		}
		c.wallOffset.Add(-int64(night)) // the wall clock ran on during the suspension
		if now := c.Check(); now < night || now > night+time.Second {
			t.Errorf("now is %v after a suspension of %v", now, night)
		}
		if !inside.Load() {
			t.Error("the boot clock was not read")
		}
	})
}
