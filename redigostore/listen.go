package redigostore

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/internal/listen"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

var _ redisconn.Listener = single{}

// Listen implements redisconn.Listener.
func (s single) Listen(ctx context.Context, channel string, sharded bool, on func(message string)) error {
	return s.listening.Listen(ctx, listen.Server{Sharded: sharded}, s.opener(sharded), channel, on)
}

// opener returns a function that opens a connection as the pool does. The connection does
// not belong to the pool.
func (s *source) opener(sharded bool) listen.Open {
	return func(ctx context.Context) (listen.Conn, error) {
		conn, err := dial(ctx, s.Pool)
		if err != nil {
			return nil, convertError(err)
		}
		return subscription{conn, sharded}, nil
	}
}

// subscription is a listen.Conn. It does without redis.PubSubConn, which has no sharded
// channels.
type subscription struct {
	conn    redis.Conn
	sharded bool
}

// Send implements listen.Conn.
func (s subscription) Send(ops []listen.Op) error {
	for _, op := range ops {
		if err := s.conn.Send(op.Command(s.sharded), op.Channel); err != nil {
			return convertError(err)
		}
	}
	return s.flush()
}

// Ping implements listen.Conn.
func (s subscription) Ping() error {
	if err := s.conn.Send("PING"); err != nil {
		return convertError(err)
	}
	return s.flush()
}

func (s subscription) flush() error {
	if err := s.conn.Flush(); err != nil {
		return convertError(err)
	}
	return nil
}

// Receive implements listen.Conn.
func (s subscription) Receive() (listen.Event, error) {
	const noLimit = 0
	reply, err := redis.ReceiveWithTimeout(s.conn, noLimit)
	var server redis.Error
	switch {
	case errors.As(err, &server):
		return listen.Event{Kind: listen.Refused, Err: convertError(err)}, nil
	case err != nil:
		return listen.Event{}, convertError(err)
	}
	return event(convertValue(reply))
}

// event converts a push of the server. The reply to PING is a status while the connection
// has no channel.
func event(reply any) (listen.Event, error) {
	if reply == "PONG" {
		return listen.Event{Kind: listen.Pong}, nil
	}
	var e listen.Event
	words, _ := reply.([]any)
	if len(words) < 2 {
		return e, redisconn.Unexpected(reply)
	}
	word, _ := words[0].(string)
	e.Kind = listen.KindOf(word)
	e.Channel, _ = words[1].(string)
	if len(words) > 2 {
		e.Text, _ = words[2].(string) // of a message; else it is a number
	}
	return e, nil
}

// Close implements listen.Conn.
func (s subscription) Close() { _ = s.conn.Close() } // nothing depends on the connection any more
