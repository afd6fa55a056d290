package work

import (
	"sync"
	"time"

	"github.com/dibslock/dibs/internal/clock"
)

// A CloseLimit limits the releases while a client closes. The zero CloseLimit is ready for use. It
// is safe for concurrent use.
type CloseLimit struct {
	mu  sync.Mutex
	end time.Time // all releases end by then; zero before Begin
}

// Begin sets the limit to five operation timeouts.
func (l *CloseLimit) Begin(timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = time.Now().Add(clock.Times(5, timeout))
}

// Shorten leaves an operation timeout for the remaining releases: the store failed to release a
// lease. While the store answers, they can take longer.
func (l *CloseLimit) Shorten(timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if soon := time.Now().Add(timeout); soon.Before(l.end) {
		l.end = soon
	}
}

// Limit returns the end of a release that begins now and can take timeout, or at most longest after
// Begin.
func (l *CloseLimit) Limit(timeout, longest time.Duration) time.Time {
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
