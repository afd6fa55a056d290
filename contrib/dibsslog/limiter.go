package dibsslog

import (
	"sync"
	"time"
)

// A limiter bounds the number of lines about an event. A period's first event gets a line, and so
// does the last event, at the end of the period.
type limiter struct {
	every time.Duration // negative: no bound

	mu         sync.Mutex
	next       time.Time            // the next line's
	last       func(suppressed int) // writes the line for the last event without a line, or nil
	suppressed int                  // events without a line before the last
}

// log calls write at once, or at the end of the period if no event comes after it.
func (l *limiter) log(write func(suppressed int)) {
	if l.every < 0 || l.begins(write) {
		write(0)
	}
}

// begins begins a period with an event, or keeps the event for the end of the period.
func (l *limiter) begins(write func(suppressed int)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case l.last != nil:
		l.suppressed++
	case !now.Before(l.next):
		l.next = now.Add(l.every)
		return true
	default:
		time.AfterFunc(l.next.Sub(now), l.flush)
	}
	l.last = write
	return false
}

// flush writes the last event's line, and begins a period.
func (l *limiter) flush() {
	l.mu.Lock()
	write, suppressed := l.last, l.suppressed
	l.last, l.suppressed = nil, 0
	l.next = time.Now().Add(l.every)
	l.mu.Unlock()
	write(suppressed)
}
