package redistest

import (
	"context"
	"sync"
)

// A queue contains a flow's chunks in transit. It is unbounded, so a frozen proxy continues to read
// and does not block its clients.
type queue struct {
	ready chan struct{} // contains an element if there may be chunks

	mu     sync.Mutex
	chunks []chunk
}

func newQueue() queue { return queue{ready: make(chan struct{}, 1)} }

func (q *queue) push(c chunk) {
	q.mu.Lock()
	q.chunks = append(q.chunks, c)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// next waits for a chunk until ctx ends.
func (q *queue) next(ctx context.Context) (c chunk, ok bool) {
	for {
		if c, ok := q.pop(); ok {
			return c, true
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return chunk{}, false
		}
	}
}

func (q *queue) pop() (c chunk, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.chunks) == 0 {
		return chunk{}, false
	}
	c = q.chunks[0]
	q.chunks[0] = chunk{}
	q.chunks = q.chunks[1:]
	return c, true
}
