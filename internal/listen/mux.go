package listen

import (
	"context"
	"sync"
)

// A Mux lets many calls share connections. The zero value is ready for use.
type Mux struct {
	mu          sync.Mutex // also guards all connections, channels and calls
	connections map[Server]*connection
}

// Listen listens on a channel until ctx ends, the server refuses or ends the
// subscription, or the connection fails, and then returns the reason. It calls on with an
// empty message once the subscription is confirmed, and with each message after that. It
// calls on in the goroutine of the caller, so not after it has returned.
//
// The first call opens the connection. It is closed a few seconds after the last call.
func (m *Mux) Listen(ctx context.Context, server Server, open Open, channel string, on func(message string)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := m.join(ctx, server, open, channel)
	defer m.leave(c)
	for {
		select {
		case <-c.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		messages, err := m.receive(c)
		for _, message := range messages {
			on(message)
		}
		if err != nil {
			return err
		}
	}
}

// join adds a call to the connection to a server, which it opens if there is none.
func (m *Mux) join(ctx context.Context, server Server, open Open, channel string) *call {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn := m.connections[server]
	if conn == nil {
		conn = newConnection(m, server)
		if m.connections == nil {
			m.connections = make(map[Server]*connection)
		}
		m.connections[server] = conn
		go conn.run(context.WithoutCancel(ctx), open)
	}
	return conn.add(channel)
}

// leave removes a call that has ended.
func (m *Mux) leave(c *call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.err == nil {
		c.connection.remove(c)
	}
}

// receive returns the messages that have arrived for a call, and why it has ended.
func (m *Mux) receive(c *call) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	messages := c.messages
	c.messages = nil
	return messages, c.err
}
