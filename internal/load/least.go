package load

import "time"

// A least is the shortest duration in the last half minute to minute. An average would depend more
// on the machine's load than on the distance to a server. It covers a time, not a number of
// samples: otherwise a store that stays slow would look distant.
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
