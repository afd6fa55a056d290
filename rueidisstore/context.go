package rueidisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A timedContext ends a little after its deadline. rueidis applies the deadline to dialling,
// writing and reading. The end bounds the waits without a deadline: for a connection from a full
// pool, and for a reply on a pipelining connection.
//
// A context must not end between a successful dial and the handshake's first command. rueidis
// 1.0.79 then closes the connection in an orderly way, with a goroutine that reads from it. If the
// server has sent an error, for example because there are too many clients, this goroutine finds a
// message without a request, and panics. After a dial that ends by the deadline, there is time for the
// handshake's start until the context ends. Both times are measured by running timers, in sequence,
// so they also differ in a process that was stopped.
type timedContext struct {
	at   time.Time
	done chan struct{}
}

// handshakeStart is the time from a context's deadline to its end.
const handshakeStart = 50 * time.Millisecond

func newTimedContext(at time.Time) *timedContext {
	c := &timedContext{at: at, done: make(chan struct{})}
	time.AfterFunc(time.Until(at), func() {
		time.AfterFunc(handshakeStart, func() { close(c.done) })
	})
	return c
}

// Deadline implements context.Context.
func (c *timedContext) Deadline() (time.Time, bool) { return c.at, true }

// Done implements context.Context.
func (c *timedContext) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *timedContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value implements context.Context.
func (c *timedContext) Value(any) any { return nil }

// withValues is a context with another context's values.
type withValues struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c withValues) Value(key any) any { return c.values.Value(key) }

// contextCache stores a single context for all calls with about the same deadline. To start a timer
// for each call would be a large part of a lock's cost.
type contextCache struct{ last atomic.Pointer[timedContext] }

// until returns a context with the given deadline, or up to 20 ms later.
func (cache *contextCache) until(at time.Time) context.Context {
	const tolerance = 20 * time.Millisecond
	if c := cache.last.Load(); c != nil && !c.at.Before(at) && c.at.Sub(at) <= tolerance {
		return c
	}
	c := newTimedContext(at.Add(tolerance))
	cache.last.Store(c)
	return c
}
