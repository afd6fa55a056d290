package rueidisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// calls counts the calls of rueidis in progress. rueidis does not say how many connections its pool
// has. But it needs the deadline of a call as soon as it has a connection for it, or opens one. A
// call whose deadline it has not read waits for the pool.
type calls struct{ waiting, connected atomic.Int64 }

// A call is the context of one call.
type call struct {
	context.Context
	calls *calls
	read  atomic.Bool
}

func (c *calls) begin(ctx context.Context) *call {
	c.waiting.Add(1)
	return &call{Context: ctx, calls: c}
}

// Deadline implements context.Context.
func (c *call) Deadline() (time.Time, bool) {
	if !c.read.Swap(true) {
		c.calls.connected.Add(1)
		c.calls.waiting.Add(-1)
	}
	return c.Context.Deadline()
}

// end ends the call. rueidis may read its deadline later, in the background.
func (c *call) end() {
	if c.read.Swap(true) {
		c.calls.connected.Add(-1)
	} else {
		c.calls.waiting.Add(-1)
	}
}

// FullPool implements redisconn.Pool. The pool is full of other work if no call has a connection.
func (c *conn) FullPool(string) string {
	if c.calls.waiting.Load() > 0 && c.calls.connected.Load() == 0 {
		return "BlockingPoolSize"
	}
	return ""
}
