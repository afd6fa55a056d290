package dibs

import (
	"sync"
	"time"
)

// A closeLimit is the time limit of the releases during Close. It is safe for concurrent
// use.
type closeLimit struct {
	mu  sync.Mutex
	end time.Time // all releases end by then; zero before Close
}

// begin sets the limit of Close to five operation timeouts.
func (l *closeLimit) begin(timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = time.Now().Add(times(5, timeout))
}

// shorten leaves one operation timeout for the remaining releases: the store has failed to
// release a lease. While the store answers, Close may take longer.
func (l *closeLimit) shorten(timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if soon := time.Now().Add(timeout); soon.Before(l.end) {
		l.end = soon
	}
}

// limit returns the end of a release that begins now and may take timeout, or at most
// longest during Close.
func (l *closeLimit) limit(timeout, longest time.Duration) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.end.IsZero() {
		return now.Add(timeout)
	}
	if end := now.Add(min(timeout, longest)); end.Before(l.end) {
		return end
	}
	return l.end
}
