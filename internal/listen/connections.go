package listen

import (
	"context"
	"sync"
	"time"
)

// Connections are the connections that calls of Listen share. The zero value is ready for
// use.
type Connections struct {
	mu       sync.Mutex // also guards all connections, channels and calls
	byServer map[Server]*connection
	failed   map[Server]*failure
}

// Listen listens on a channel until ctx ends, the server refuses or ends the
// subscription, or the connection fails, and then returns the reason. It calls on with an
// empty message once the subscription is confirmed, and with each message after that. It
// calls on in the goroutine of the caller, so not after it has returned.
//
// The first call opens the connection. It is closed a few seconds after the last call. After
// a failure, calls fail at once until the next connection is due.
func (all *Connections) Listen(ctx context.Context, server Server, open Open, channel string, on func(message string)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := all.join(ctx, server, open, channel)
	defer all.leave(c)
	for {
		select {
		case <-c.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		messages, err := all.receive(c)
		for _, message := range messages {
			on(message)
		}
		if err != nil {
			return err
		}
	}
}

// join adds a call to the connection to a server, which it opens if there is none.
func (all *Connections) join(ctx context.Context, server Server, open Open, channel string) *call {
	all.mu.Lock()
	defer all.mu.Unlock()
	conn := all.byServer[server]
	if conn == nil {
		if err := all.refusal(server, time.Now()); err != nil {
			refused := &call{ready: make(chan struct{}, 1)}
			refused.fail(err)
			return refused
		}
		conn = newConnection(all, server)
		if all.byServer == nil {
			all.byServer = make(map[Server]*connection)
		}
		all.byServer[server] = conn
		go conn.run(context.WithoutCancel(ctx), open)
	}
	return conn.add(channel)
}

// leave removes a call that has ended.
func (all *Connections) leave(c *call) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if c.err == nil {
		c.connection.remove(c)
	}
}

// receive returns the messages that have arrived for a call, and why it has ended.
func (all *Connections) receive(c *call) ([]string, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	messages := c.messages
	c.messages = nil
	return messages, c.err
}
