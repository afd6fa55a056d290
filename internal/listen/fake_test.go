package listen_test

import (
	"context"
	"errors"
	"sync"

	"github.com/dibslock/dibs/internal/listen"
)

var errClosed = errors.New("closed")

// fake is a server, and the connections to it. Commands wait for step, unless it is nil.
type fake struct {
	step chan struct{} // a value lets the server execute one command

	mu      sync.Mutex
	opened  int
	open    []*fakeConn
	sent    []listen.Op // commands in the order of execution
	dialing func(ctx context.Context) error

	refuse     error // the reply to SUBSCRIBE
	refusePing bool
	refuseEnd  error // the reply to UNSUBSCRIBE
	mute       bool  // the server replies to nothing
}

// Open is a listen.Open.
func (f *fake) Open(ctx context.Context) (listen.Conn, error) {
	f.mu.Lock()
	f.opened++
	dialing := f.dialing
	f.mu.Unlock()
	if dialing != nil {
		if err := dialing(ctx); err != nil {
			return nil, err
		}
	}
	c := &fakeConn{
		server: f, subscribed: make(map[string]bool),
		commands: make(chan command, 10000), events: make(chan listen.Event, 10000), done: make(chan error, 1), closed: make(chan struct{}),
	}
	f.mu.Lock()
	f.open = append(f.open, c)
	f.mu.Unlock()
	go c.serve()
	return c, nil
}

func (f *fake) count() (opened, open, sent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened, len(f.open), len(f.sent)
}

// publish sends a message to each connection that is subscribed.
func (f *fake) publish(channel, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		if c.subscribed[channel] {
			c.events <- listen.Event{Kind: listen.Message, Channel: channel, Text: text}
		}
	}
}

// move ends the subscriptions to a channel, as when its slot moves.
func (f *fake) move(channel string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		if c.subscribed[channel] {
			delete(c.subscribed, channel)
			c.events <- listen.Event{Kind: listen.Unsubscribed, Channel: channel}
		}
	}
}

// fail ends each connection.
func (f *fake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		select {
		case c.done <- err:
		default: // it has failed already
		}
	}
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// command is an Op or, without a channel, a ping.
type command struct{ listen.Op }

// fakeConn is a listen.Conn.
type fakeConn struct {
	server     *fake
	subscribed map[string]bool // guarded by fake.mu
	commands   chan command
	events     chan listen.Event
	done       chan error
	closed     chan struct{}
}

func (c *fakeConn) Send(ops []listen.Op) error {
	for _, op := range ops {
		c.commands <- command{op}
	}
	return nil
}

func (c *fakeConn) Ping() error {
	c.commands <- command{}
	return nil
}

func (c *fakeConn) Receive() (listen.Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	case err := <-c.done:
		return listen.Event{}, err
	case <-c.closed:
		return listen.Event{}, errClosed
	}
}

func (c *fakeConn) Close() {
	close(c.closed)
	c.server.set(func() {
		for i, open := range c.server.open {
			if open == c {
				c.server.open = append(c.server.open[:i:i], c.server.open[i+1:]...)
				return
			}
		}
	})
}

// serve executes commands.
func (c *fakeConn) serve() {
	for {
		select {
		case cmd := <-c.commands:
			if cmd.Channel != "" && c.server.step != nil {
				select {
				case <-c.server.step:
				case <-c.closed:
					return
				}
			}
			c.execute(cmd)
		case <-c.closed:
			return
		}
	}
}

func (f *fake) pong() listen.Event {
	if f.refusePing {
		return listen.Event{Kind: listen.Refused, Err: errors.New("NOPERM PING")}
	}
	return listen.Event{Kind: listen.Pong}
}

func (c *fakeConn) execute(cmd command) {
	f := c.server
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mute {
		return
	}
	if cmd.Channel == "" {
		c.events <- f.pong()
		return
	}
	f.sent = append(f.sent, cmd.Op)
	switch {
	case !cmd.Subscribe && f.refuseEnd != nil:
		c.events <- listen.Event{Kind: listen.Refused, Err: f.refuseEnd}
	case !cmd.Subscribe:
		delete(c.subscribed, cmd.Channel)
		c.events <- listen.Event{Kind: listen.Unsubscribed, Channel: cmd.Channel}
	case f.refuse != nil:
		c.events <- listen.Event{Kind: listen.Refused, Err: f.refuse}
	default:
		c.subscribed[cmd.Channel] = true
		c.events <- listen.Event{Kind: listen.Subscribed, Channel: cmd.Channel}
	}
}
