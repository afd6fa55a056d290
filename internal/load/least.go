package load

import "time"

// A least is the shortest of the last durations: of the last half minute to minute. The average
// says more about how busy a machine is than about the distance to a server. It is a time and
// not a number of them: a store that is slow for long would otherwise be taken for a distant one.
type least struct {
	from              time.Duration // when current began
	current, previous time.Duration // or unknown
}

const (
	unknown     = time.Duration(-1)
	leastWindow = 30 * time.Second
)

// add records a duration.
func (l *least) add(now, d time.Duration) {
	if now-l.from >= leastWindow {
		l.previous, l.current, l.from = l.current, unknown, now
	}
	if l.current == unknown || d < l.current {
		l.current = d
	}
}

// value returns the shortest duration.
func (l *least) value() time.Duration {
	if l.previous == unknown {
		return l.current
	}
	return min(l.current, l.previous)
}
