package dibs

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The kernel is asked whether the machine was suspended at first, and when the wall clock
// has left the monotonic one, and not for each lock.
func TestBootClockIsAskedWhenTheWallClockMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		asked := 0
		c.suspended = func() time.Duration { asked++; return c.suspendedBefore }
		wantAsked := func(want int, when string) {
			t.Helper()
			if c.checkClock(); asked != want {
				t.Errorf("it was asked %d times %s, want %d", asked, when, want)
			}
			asked = 0
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

// Nobody reads the time before a suspension is counted, while somebody else is about to.
func TestSuspensionIsSeenByAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.checkClock()
		const night = 8 * time.Hour
		var inside atomic.Bool
		c.suspended = func() time.Duration {
			if inside.CompareAndSwap(false, true) { // another one looks just now
				if now := c.checkClock(); now < night {
					t.Errorf("it is %v after a suspension of %v", now, night)
				}
			}
			return c.suspendedBefore + night
		}
		c.wallOffset.Add(-int64(night)) // the wall clock went on meanwhile
		if now := c.checkClock(); now < night || now > night+time.Second {
			t.Errorf("it is %v after a suspension of %v", now, night)
		}
		if !inside.Load() {
			t.Error("the kernel was not asked")
		}
	})
}
