package zkstore

import (
	"context"
	"sync"
)

// turns lets calls for the same token follow each other. Two acquires at once would each add an
// entry, and the token would wait for itself. They are safe for concurrent use.
type turns struct {
	mu  sync.Mutex
	all map[recordKey]*callers
}

type callers struct {
	number int           // those in a call, and those that wait
	free   chan struct{} // contains a value while nobody is in a call
}

// begin waits for a token's turn. The caller must call end after a nil error.
func (ts *turns) begin(ctx context.Context, name, token string) (end func(), err error) {
	key := recordKey{name, token}
	ts.mu.Lock()
	c := ts.all[key]
	if c == nil {
		c = &callers{free: make(chan struct{}, 1)}
		c.free <- struct{}{}
		ts.all[key] = c
	}
	c.number++
	ts.mu.Unlock()
	select {
	case <-c.free:
		return func() { c.free <- struct{}{}; ts.leave(key, c) }, nil
	case <-ctx.Done():
		ts.leave(key, c)
		return nil, context.Cause(ctx)
	}
}

func (ts *turns) leave(key recordKey, c *callers) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if c.number--; c.number == 0 {
		delete(ts.all, key)
	}
}
