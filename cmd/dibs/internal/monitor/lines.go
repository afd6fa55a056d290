package monitor

import "sync"

// lines are calls that write lines. A separate goroutine makes them in order, because a renewal
// must not wait for the reader of stderr.
type lines struct {
	pending chan func()
	written chan struct{} // closed when all lines are written

	mu     sync.Mutex
	closed bool
}

func newLines() *lines {
	const most = 16 // unread lines; more are dropped
	l := &lines{pending: make(chan func(), most), written: make(chan struct{})}
	go func() {
		defer close(l.written)
		for write := range l.pending {
			write()
		}
	}()
	return l
}

// put queues a line. It drops the line if the queue is full or closed.
func (l *lines) put(write func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	select {
	case l.pending <- write:
	default:
	}
}

func (l *lines) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close waits until the pending lines are written.
func (l *lines) close() {
	l.stop()
	<-l.written
}

func (l *lines) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.pending)
	}
}
