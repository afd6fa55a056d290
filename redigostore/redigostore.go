// Package redigostore stores locks in Redis through your redigo pool:
//
//	pool := &redis.Pool{
//		MaxIdle: 10,
//		DialContext: func(ctx context.Context) (redis.Conn, error) {
//			return redis.DialContext(ctx, "tcp", "10.0.0.1:6379", timeouts...)
//		},
//	}
//	locks := dibs.New(redigostore.New(pool))
//
// The pool remains yours: the store never closes it. You should close the dibs.Client before the
// pool.
//
// # One server or Sentinel
//
//   - A single server, with or without replicas: [New] with a pool that dials it, over TCP,
//     TLS (redis.DialUseTLS) or a Unix socket.
//   - Sentinel: [New] with a pool whose DialContext queries the sentinels for the master.
//     redigo does not support Sentinel; the Sentinel example below contains the whole code.
//     The store drops connections to a former master.
//
// redigo does not support Redis Cluster, and neither does this package: use goredisstore or
// rueidisstore. A call redirected by a cluster returns dibs.ErrInvalid.
//
// # Connections
//
// Locking and unlocking normally use up to 4 connections of the pool at a time, however many
// goroutines lock. With [redisstore.WithReplicas] each call uses a connection until the replicas
// acknowledge the write. You should set MaxIdle to at least 4; otherwise connections are opened and
// closed all the time. If the pool is full (MaxActive) and does not Wait, the store tries every 5
// ms for up to 1 s to get a connection.
//
// The subscription to notifications uses its own connection, dialled like the pool's connections.
// It does not count in the pool.
//
// redigo does not notice when an idle connection ends. When the store gets such a connection, it
// also closes the other ended connections.
//
// A lone caller can send its requests without a change of goroutine, which is faster, if the pool
// keeps idle connections and honours contexts. For this set MaxIdle, use DialContext instead of
// Dial, and TestOnBorrowContext instead of TestOnBorrow.
//
// # Hooks and timeouts
//
// redigo offers no hooks. DialContext receives the context values from the caller whose request
// needs a connection.
//
// You should set redis.DialConnectTimeout, DialReadTimeout and DialWriteTimeout on the connections,
// for example to 1 s. The store itself limits how long callers and a request's reads wait. A read
// ends at the call's deadline, but not before 1 s, and after 8 s at the latest. The store cannot
// limit a hanging write or Dial. Such a call occupies its connection in the pool until it returns.
package redigostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

// New returns a store on a pool with connections to a single server, or to the master that
// sentinels name. It performs no I/O. With a nil pool, every call to the store returns
// dibs.ErrInvalid.
func New(pool *redis.Pool, options ...redisstore.Option) *redisstore.Store {
	if pool == nil {
		return redisstore.New(redisconn.Invalid("redigostore.New: the redigo pool is nil"), options...)
	}
	return redisstore.New(&source{Pool: pool}, options...)
}

// honoursContexts reports whether the pool keeps idle connections, and passes a context to every
// function that can block.
func honoursContexts(pool *redis.Pool) bool {
	return pool.MaxIdle > 0 && pool.DialContext != nil && pool.TestOnBorrow == nil
}

const (
	ioTimeout    = time.Second          // to get a connection, and again for all replies
	pingInterval = time.Second          // on a subscription
	fullPause    = 5 * time.Millisecond // between tries on a full pool that does not wait
)

// Traits implements redisconn.Conn.
func (s *source) Traits() redisconn.Traits {
	return redisconn.Traits{KeepsUntil: honoursContexts(s.Pool)}
}

// Do implements redisconn.Conn.
func (s *source) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if !until.IsZero() && s.IdleCount() == 0 {
		fill(replies, redisconn.ErrUnsent)
		return
	}
	s.send(ctx, until, cmds, replies)
}

// Masters implements redisconn.Conn.
func (s *source) Masters(_ context.Context, visit func(redisconn.Node) error) error {
	return visit(redisconn.Node{Do: func(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) {
		s.send(ctx, time.Time{}, cmds, replies)
	}})
}

// send sends commands on a connection, and then reads their replies. The caller waits until a time
// at most, unless it is zero.
func (s *source) send(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if until.IsZero() {
		until = redisconn.Until(ctx, ioTimeout, cmds)
	}
	replies = replies[:len(cmds)]
	conn, err := s.write(ctx, until, cmds...)
	if err != nil {
		fill(replies, err)
		return
	}
	for i := range replies {
		replies[i] = receive(conn.Conn, until)
		replies[i].Err = s.explainEnd(replies[i].Err)
		if conn.Err() != nil { // no more replies will arrive
			fill(replies[i:], replies[i].Err)
			break
		}
		conn.checkMaster(replies[i].Err)
	}
	s.put(ctx, conn, replies[len(replies)-1].Err)
}

// Replicate implements redisconn.Conn.
func (s *source) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) (last redisconn.Reply) {
	conn, err := s.write(ctx, deadline(ctx), call, wait.Cmd())
	if err != nil {
		answered(redisconn.Reply{Err: err})
		return redisconn.Reply{Err: err}
	}
	defer func() { s.put(ctx, conn, last.Err) }()
	first := receive(conn.Conn, deadline(ctx))
	answered(first)
	if conn.Err() != nil {
		return first
	}
	conn.checkMaster(first.Err)
	return receive(conn.Conn, time.Now().Add(ioTimeout+wait.Timeout))
}

// deadline returns the time by which a call that starts now must end.
func deadline(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(ioTimeout)
}

// write sends commands on a connection from the pool, for which it waits until a time, and returns
// the connection. The caller must put it back. redigo never sends a command twice.
func (s *source) write(ctx context.Context, until time.Time, cmds ...redisconn.Cmd) (*conn, error) {
	conn, err := s.get(ctx, until)
	if err != nil {
		return nil, s.explain(err)
	}
	for _, cmd := range cmds {
		if err == nil {
			words := arguments(&cmd)
			err = conn.Send(words[0].(string), words[1:]...)
		}
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		s.put(ctx, conn, err)
		return nil, convertError(err)
	}
	return conn, nil
}

// arguments returns a command's words.
func arguments(cmd *redisconn.Cmd) []any {
	args := make([]any, 0, 3+len(cmd.Keys)+len(cmd.Args))
	switch {
	case cmd.Script == nil:
	case cmd.Whole:
		args = append(args, "EVAL", cmd.Script.Text, len(cmd.Keys))
	default:
		args = append(args, "EVALSHA", cmd.Script.Hash, len(cmd.Keys))
	}
	for _, key := range cmd.Keys {
		args = append(args, key)
	}
	for _, arg := range cmd.Args {
		args = append(args, arg)
	}
	return args
}

func receive(conn redis.Conn, until time.Time) redisconn.Reply {
	// redigo waits without limit if the timeout is 0.
	value, err := redis.ReceiveWithTimeout(conn, max(time.Until(until), time.Nanosecond))
	if err != nil {
		return redisconn.Reply{Err: convertError(err)}
	}
	return redisconn.Reply{Value: convertValue(value)}
}

// convertValue converts a redigo value to redisstore's form. It changes lists in place.
func convertValue(value any) any {
	switch v := value.(type) {
	case []byte:
		return string(v)
	case redis.Error:
		return redisconn.ServerError(v)
	case []any:
		for i := range v {
			v[i] = convertValue(v[i])
		}
	}
	return value
}

func fill(replies []redisconn.Reply, err error) {
	for i := range replies {
		replies[i] = redisconn.Reply{Err: err}
	}
}

// convertError converts a redigo error to a form that redisstore recognizes.
func convertError(err error) error {
	const closed = "redigo: get on closed pool" // redigo does not export this error
	var server redis.Error
	switch {
	case err.Error() == closed:
		return fmt.Errorf("%w: %w", redisconn.ErrClosed, err)
	case errors.As(err, &server) && isRedirect(string(server)):
		return fmt.Errorf("%w: the server is a node of a Redis Cluster, which redigo does not support: use goredisstore or rueidisstore: %w", driver.ErrInvalid, err)
	case errors.As(err, &server):
		return redisconn.ServerError(server)
	}
	return err
}

// isRedirect reports whether an error names another node in a cluster.
func isRedirect(text string) bool {
	return strings.HasPrefix(text, "MOVED ") || strings.HasPrefix(text, "ASK ")
}
