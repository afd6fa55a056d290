package work

import (
	"context"
	"sync"
)

// maxQueued is how many calls can wait for a slow call.
const maxQueued = 10_000

// A CallQueue calls functions in sequence, in a goroutine that exists only while the queue is not
// empty. So a function that is slow, or never returns, delays only later functions. The zero
// CallQueue is ready for use. It is safe for concurrent use.
type CallQueue struct {
	mu    sync.Mutex
	calls []func()
	idle  chan struct{} // closed when all calls have returned; nil while there is none
}

// Add queues a call. If too many calls wait, it drops an unimportant call and returns false.
func (q *CallQueue) Add(important bool, call func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) >= maxQueued && !important {
		return false
	}
	q.calls = append(q.calls, call)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
	return true
}

func (q *CallQueue) run() {
	exits := true
	defer func() {
		if exits { // the function called runtime.Goexit: the others must still be called
			go q.run()
		}
	}()
	for call := q.next(); call != nil; call = q.next() {
		call()
	}
	exits = false
}

// next returns the first call, or nil if there is none.
func (q *CallQueue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == 0 {
		close(q.idle)
		q.idle, q.calls = nil, nil
		return nil
	}
	call := q.calls[0]
	q.calls[0] = nil
	q.calls = q.calls[1:]
	return call
}

// Wait waits until all calls have returned or ctx has ended.
func (q *CallQueue) Wait(ctx context.Context) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
