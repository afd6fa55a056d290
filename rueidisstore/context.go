package rueidisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A timedContext has a deadline, and ends a little later. rueidis applies the deadline to
// dialling, writing and reading. The end is for what has no deadline: to wait for a
// connection of a full pool, and for a reply on a connection that pipelines.
//
// A context must not end between a successful dial and the first command of the handshake.
// rueidis 1.0.79 then closes the connection in an orderly way, with a goroutine that reads
// from it. If the server has sent an error, such as that it has too many clients, this goroutine
// finds a message that nothing has requested, and panics. A dial that ends by the deadline
// has time for the handshake's start until the context ends. Both times are measured by
// running timers, one after the other, so they also differ in a process that was stopped.
type timedContext struct {
	at   time.Time
	done chan struct{}
}

// handshakeStart is the time from the deadline of a context to its end.
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

// withValues is a context with the values of another one.
type withValues struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c withValues) Value(key any) any { return c.values.Value(key) }

// contextCache holds one context for all calls with about the same deadline. Starting a
// timer for each call would be a large part of the cost of a lock.
type contextCache struct{ last atomic.Pointer[timedContext] }

// until returns a context with the given deadline, or one up to 20 ms later.
func (cache *contextCache) until(at time.Time) context.Context {
	const tolerance = 20 * time.Millisecond
	if c := cache.last.Load(); c != nil && !c.at.Before(at) && c.at.Sub(at) <= tolerance {
		return c
	}
	c := newTimedContext(at.Add(tolerance))
	cache.last.Store(c)
	return c
}
