// Package turns lets calls for the same token follow each other. It is for store authors.
package turns

import (
	"context"
	"sync"
)

// Turns are the calls for all tokens. Two acquires at once would each add an entry to a queue, and the
// token would wait for itself. The zero value has no calls. Turns are safe for concurrent use.
type Turns struct {
	mu  sync.Mutex
	all map[key]*callers
}

type key struct{ name, token string }

type callers struct {
	number int           // those in a call, and those that wait
	free   chan struct{} // contains a value while nobody is in a call
}

// Begin waits for a token's turn, or until ctx ends. The caller must call end after a nil error.
func (ts *Turns) Begin(ctx context.Context, name, token string) (end func(), err error) {
	k := key{name, token}
	ts.mu.Lock()
	c := ts.all[k]
	if c == nil {
		if ts.all == nil {
			ts.all = make(map[key]*callers)
		}
		c = &callers{free: make(chan struct{}, 1)}
		c.free <- struct{}{}
		ts.all[k] = c
	}
	c.number++
	ts.mu.Unlock()
	select {
	case <-c.free:
		return func() { c.free <- struct{}{}; ts.leave(k, c) }, nil
	case <-ctx.Done():
		ts.leave(k, c)
		return nil, context.Cause(ctx)
	}
}

func (ts *Turns) leave(k key, c *callers) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if c.number--; c.number == 0 {
		delete(ts.all, k)
	}
}
