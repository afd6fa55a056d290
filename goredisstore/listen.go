package goredisstore

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/internal/listen"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/go-redis/v9"
)

var _ redisconn.Listener = (*conn)(nil)

// Listen implements redisconn.Listener. Messages of go-redis do not say whether a channel
// is sharded, so there is a connection for each of the two kinds.
func (c *conn) Listen(ctx context.Context, channel string, sharded bool, on func(message string)) error {
	server := listen.Server{Sharded: sharded}
	if c.cluster == nil {
		return c.listening.Listen(ctx, server, opener(c.single, sharded), channel, on)
	}
	master, err := listen.Await(ctx, func() (*redis.Client, error) { return c.cluster.MasterForKey(ctx, channel) }, nil)
	if err == nil {
		if sharded {
			server.Addr = master.Options().Addr
		}
		err = c.listening.Listen(ctx, server, opener(master, sharded), channel, on)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.reloadAfter(err)
	return convertError(err)
}

// opener returns a function that opens a connection for subscriptions.
func opener(rdb *redis.Client, sharded bool) listen.Open {
	return func(ctx context.Context) (listen.Conn, error) {
		sub := clone(rdb, ioTimeout).Subscribe(ctx)
		if err := connect(ctx, sub); err != nil {
			_ = sub.Close() // it is not connected, or connect has returned why not
			return nil, convertError(err)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return &subscription{sub: sub, sharded: sharded, ended: ended}, nil
	}
}

// connect opens the connection of a PubSub, by a ping. An error reply shows, too, that it
// is open.
func connect(ctx context.Context, sub *redis.PubSub) error {
	if err := sub.Ping(ctx); err != nil {
		return err
	}
	var server redis.Error
	if _, err := sub.ReceiveTimeout(ctx, ioTimeout); err != nil && !errors.As(err, &server) {
		return err
	}
	return nil
}

// subscription is a listen.Conn. After an error go-redis connects and subscribes again,
// before it returns the error. With a context that has ended it cannot, and returns at
// once. Its reads and writes do not depend on the context.
type subscription struct {
	sub     *redis.PubSub
	sharded bool
	ended   context.Context
}

// Send implements listen.Conn.
func (s *subscription) Send(ops []listen.Op) error {
	for _, op := range ops {
		if err := s.send(op); err != nil {
			return convertError(err)
		}
	}
	return nil
}

func (s *subscription) send(op listen.Op) error {
	switch {
	case op.Subscribe && s.sharded:
		return s.sub.SSubscribe(s.ended, op.Channel)
	case op.Subscribe:
		return s.sub.Subscribe(s.ended, op.Channel)
	case s.sharded:
		return s.sub.SUnsubscribe(s.ended, op.Channel)
	}
	return s.sub.Unsubscribe(s.ended, op.Channel)
}

// Ping implements listen.Conn.
func (s *subscription) Ping() error { return convertError(s.sub.Ping(s.ended)) }

// Receive implements listen.Conn.
func (s *subscription) Receive() (listen.Event, error) {
	received, err := s.sub.Receive(s.ended)
	var server redis.Error
	switch {
	case errors.As(err, &server):
		return listen.Event{Kind: listen.Refused, Err: convertError(err)}, nil
	case err != nil:
		return listen.Event{}, convertError(err)
	}
	switch r := received.(type) {
	case *redis.Subscription:
		return listen.Event{Kind: listen.KindOf(r.Kind), Channel: r.Channel}, nil
	case *redis.Message:
		return listen.Event{Kind: listen.Message, Channel: r.Channel, Text: r.Payload}, nil
	case *redis.Pong:
		return listen.Event{Kind: listen.Pong}, nil
	}
	return listen.Event{}, nil
}

// Close implements listen.Conn.
func (s *subscription) Close() { _ = s.sub.Close() } // nothing depends on the connection any more
