package dibsslog

import (
	"sync"
	"time"
)

// A limiter bounds the number of lines of one event. The first event of a period has a line,
// and so has the last one, at the end of the period.
type limiter struct {
	every time.Duration // negative: no bound

	mu         sync.Mutex
	next       time.Time            // of the next line
	last       func(suppressed int) // writes the line of the last event without one, or nil
	suppressed int                  // events before the last one without a line
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

// flush writes the line of the last event, and begins a period.
func (l *limiter) flush() {
	l.mu.Lock()
	write, suppressed := l.last, l.suppressed
	l.last, l.suppressed = nil, 0
	l.next = time.Now().Add(l.every)
	l.mu.Unlock()
	write(suppressed)
}
