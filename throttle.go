package dibs

import "time"

// A throttle spaces out what each of many events asks for. The first event counts at
// once. Events that follow soon count together, after a pause that grows while they go
// on. The zero throttle is ready for use; it needs a lock of its user's.
type throttle struct {
	used    bool
	last    time.Duration // when it opened last
	pause   time.Duration // from then until it opens again
	pending bool
	due     time.Duration // when it opens for the events that wait
}

const (
	shortestPause = 250 * time.Millisecond
	longestPause  = 4 * time.Second
	quiet         = 10 * time.Second // without an event that long the pause is forgotten
)

// request notes an event.
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

// next is when the throttle opens, or never.
func (t *throttle) next() time.Duration {
	if !t.pending {
		return never
	}
	return t.due
}

// open reports whether an event waits, and is due.
func (t *throttle) open(now time.Duration) bool {
	if !t.pending || now < t.due {
		return false
	}
	t.used, t.pending = true, false
	t.last, t.pause = now, min(max(2*t.pause, shortestPause), longestPause)
	return true
}
