package rueidisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// calls counts the calls to rueidis in progress. rueidis does not report its pool's number of
// connections. But it reads a call's deadline as soon as it gets a connection for it, or opens a
// new connection. A call whose deadline was not read waits for the pool.
type calls struct{ waiting, connected atomic.Int64 }

// A call is the context for a single call.
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

// end ends the call. rueidis can read its deadline later, in the background.
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
