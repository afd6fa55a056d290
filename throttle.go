package dibs

import "time"

// A throttle limits how often events take effect. The first event takes effect at once.
// Events that follow soon take effect together, after a pause that grows while they
// continue. The zero throttle is ready for use. It is not safe for concurrent use.
type throttle struct {
	used    bool
	last    time.Duration // when an event last took effect
	pause   time.Duration // the shortest time from last to the next effect
	pending bool
	due     time.Duration // when the pending events take effect
}

const (
	shortestPause = 250 * time.Millisecond
	longestPause  = 4 * time.Second
	quiet         = 10 * time.Second // without an event for this long, the pause is reset
)

// request records an event.
func (t *throttle) request(now time.Duration) {
	if t.pending {
		return
	}
	if t.used && now-t.last < quiet {
		t.due = max(now, t.last+t.pause)
	} else {
		t.due, t.pause = now, 0
	}
	t.pending = true
}

// next returns when the pending events take effect, or never.
func (t *throttle) next() time.Duration {
	if !t.pending {
		return never
	}
	return t.due
}

// open reports whether events are pending and due. It clears them in that case.
func (t *throttle) open(now time.Duration) bool {
	if !t.pending || now < t.due {
		return false
	}
	t.used, t.pending = true, false
	t.last, t.pause = now, min(max(2*t.pause, shortestPause), longestPause)
	return true
}
