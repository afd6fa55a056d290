package dibsslog

import (
	"sync"
	"time"
)

// A limiter bounds the number of lines of one event.
type limiter struct {
	every time.Duration // negative: no bound

	mu         sync.Mutex
	next       time.Time // of the next line
	suppressed int       // since the last line
}

// pass reports whether an event has a line, and how many had none since the last line.
func (l *limiter) pass() (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed = l.suppressed, 0
	l.next = now.Add(l.every)
	return suppressed, true
}
