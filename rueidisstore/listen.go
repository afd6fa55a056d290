package rueidisstore

import (
	"context"
	"time"

	"github.com/dibslock/dibs/internal/listen"
	"github.com/dibslock/dibs/internal/slots"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

var _ redisconn.Listener = (*conn)(nil)

// Listen implements redisconn.Listener.
func (c *conn) Listen(ctx context.Context, channel string, sharded bool, on func(message string)) error {
	server := listen.Server{Sharded: sharded}
	if !c.sharded {
		return c.listening.Listen(ctx, server, c.opener(c.client, sharded), channel, on)
	}
	owner, err := listen.Await(ctx, func() (owner, error) { return c.owners.of(ctx, c, slots.Of(channel)) }, nil)
	if err != nil {
		return err
	}
	if sharded {
		server.Addr = owner.addr
	}
	err = c.listening.Listen(ctx, server, c.opener(owner.client, sharded), channel, on)
	if ctx.Err() == nil {
		owner.discard()
	}
	return err
}

// opener returns a function that opens a connection for subscriptions. Dedicate may block
// and accepts no context; Connections do not wait for it beyond their time limit.
func (c *conn) opener(client rueidis.Client, sharded bool) listen.Open {
	return func(ctx context.Context) (listen.Conn, error) {
		dedicated, _ := client.Dedicate()
		s := &subscription{conn: c, dedicated: dedicated, sharded: sharded, events: make(chan listen.Event)}
		s.ctx, s.cancel = context.WithCancel(context.Background()) // without the values of the first caller
		s.closed = dedicated.SetPubSubHooks(rueidis.PubSubHooks{
			OnSubscription: func(p rueidis.PubSubSubscription) {
				s.pass(listen.Event{Kind: listen.KindOf(p.Kind), Channel: p.Channel})
			},
			OnMessage: func(m rueidis.PubSubMessage) {
				s.pass(listen.Event{Kind: listen.Message, Channel: m.Channel, Text: m.Message})
			},
		})
		return s, nil
	}
}

// subscription is a listen.Conn.
type subscription struct {
	conn      *conn
	dedicated rueidis.DedicatedClient
	sharded   bool
	events    chan listen.Event
	closed    <-chan error // has the reason why the connection has ended

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

// pass passes an event to Receive.
func (s *subscription) pass(e listen.Event) {
	select {
	case s.events <- e:
	case <-s.ctx.Done():
	}
}

// Send implements listen.Conn. It returns after the replies. Of these, hooks report those
// without an error.
func (s *subscription) Send(ops []listen.Op) error {
	cmds := make([]rueidis.Completed, len(ops))
	for i, op := range ops {
		cmds[i] = s.command(op)
	}
	for i, result := range s.dedicated.DoMulti(newTimedContext(time.Now().Add(ioTimeout)), cmds...) {
		if err := result.NonRedisError(); err != nil {
			return s.conn.convertError(s.ctx, err)
		}
		if err := s.conn.reply(s.ctx, result).Err; err != nil {
			s.pass(listen.Event{Kind: listen.Refused, Channel: ops[i].Channel, Err: err})
		}
	}
	return nil
}

// command returns the command of an Op. The types of rueidis' builder differ.
func (s *subscription) command(op listen.Op) rueidis.Completed {
	switch b := s.dedicated.B(); {
	case op.Subscribe && s.sharded:
		return b.Ssubscribe().Channel(op.Channel).Build()
	case op.Subscribe:
		return b.Subscribe().Channel(op.Channel).Build()
	case s.sharded:
		return b.Sunsubscribe().Channel(op.Channel).Build()
	default:
		return b.Unsubscribe().Channel(op.Channel).Build()
	}
}

// Ping implements listen.Conn. It unsubscribes from a channel that nothing subscribes to.
// With RESP2, rueidis sends a PING on another connection than that of the subscriptions.
func (s *subscription) Ping() error {
	const none = "dibs:ping"
	result := s.dedicated.Do(newTimedContext(time.Now().Add(ioTimeout)), s.dedicated.B().Unsubscribe().Channel(none).Build())
	if err := result.NonRedisError(); err != nil {
		return s.conn.convertError(s.ctx, err)
	}
	s.pass(listen.Event{Kind: listen.Pong}) // for an error reply, too
	return nil
}

// Receive implements listen.Conn.
func (s *subscription) Receive() (listen.Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case err := <-s.closed:
		return listen.Event{}, s.conn.subscriptionError(s.ctx, err)
	}
}

// Close implements listen.Conn. It takes a second if the connection is unresponsive. Send
// and Ping then return, because the connection has ended.
func (s *subscription) Close() {
	s.cancel()
	s.dedicated.Close()
}
