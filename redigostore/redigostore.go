// Package redigostore keeps claims on Redis through a redigo pool that you have:
//
//	locks := dibs.New(redigostore.New(pool))
//
// It neither builds nor closes the pool. With Sentinel the pool's DialContext asks
// the sentinels who is master (see the example); NewCluster is for Redis Cluster,
// which redigo itself does not know.
//
// Give the connections redis.DialConnectTimeout, DialReadTimeout and
// DialWriteTimeout: dibs bounds its callers and its own reads, but not a write or a
// Dial that hangs, and these keep a place in the pool. Calls are quickest, by some
// changes of goroutine, on a pool that keeps idle connections (MaxIdle) and is told
// of contexts: DialContext in place of Dial, TestOnBorrowContext of TestOnBorrow.
// Close the dibs.Client before the pool.
package redigostore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dibslock/dibs/redisstore"
	"github.com/gomodule/redigo/redis"
)

// An Option adjusts the store.
type Option = redisstore.Option

// Prefix is put before each name to make its key. The default is "lock:"; it may
// be empty, so that names are keys, as most other libraries have it. See
// redisstore.Prefix for the keys beside these.
func Prefix(prefix string) Option { return redisstore.Prefix(prefix) }

// WithReplicas makes acquiring and renewing wait until n replicas have the write. See
// redisstore.WithReplicas.
func WithReplicas(n int, timeout time.Duration) Option { return redisstore.WithReplicas(n, timeout) }

// New returns a store on a pool. It does no I/O. With a nil pool each call returns
// dibs.ErrInvalid.
func New(pool *redis.Pool, options ...Option) *redisstore.Store {
	if pool == nil {
		return redisstore.New(redisstore.Invalid("the redigo pool is nil"), options...)
	}
	if prompt(pool) {
		options = append([]Option{redisstore.Prompt()}, options...)
	}
	return redisstore.New(single{&source{Pool: pool}}, options...)
}

// prompt reports whether the pool is told of deadlines in all that may take time.
func prompt(pool *redis.Pool) bool {
	return pool.MaxIdle > 0 && pool.DialContext != nil && pool.TestOnBorrow == nil
}

const (
	ioTimeout = time.Second          // to get a connection, and again for all replies
	pingEvery = time.Second          // on a subscription
	nextTry   = 5 * time.Millisecond // for a place in a pool that does not wait
)

type single struct{ *source }

// Do implements redisstore.Conn. What has a deadline does not wait for a connection.
func (s single) Do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	if _, bounded := ctx.Deadline(); bounded && s.IdleCount() == 0 {
		fill(replies, redisstore.ErrUnsent)
		return
	}
	s.do(ctx, cmds, replies)
}

// Replicate implements redisstore.Conn.
func (s single) Replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) redisstore.Reply {
	return s.replicate(ctx, cmd, wait, answered)
}

// Subscribe implements redisstore.Conn.
func (s single) Subscribe(ctx context.Context, channel string, on func(message string)) error {
	return s.subscribe(ctx, channel, func(message string) {
		if message == "" { // other connections may still lead to who was master before
			s.renew(ctx)
		}
		on(message)
	})
}

// Masters implements redisstore.Conn.
func (s single) Masters(_ context.Context, visit func(redisstore.Node) error) error {
	return visit(s.node(""))
}

func (s *source) node(addr string) redisstore.Node { return redisstore.Node{Addr: addr, Do: s.do} }

// do sends commands on one connection, and then reads their replies.
func (s *source) do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	replies = replies[:len(cmds)]
	conn, err := s.send(ctx, cmds...)
	if err != nil {
		fill(replies, err)
		return
	}
	until := limit(ctx)
	for i := range replies {
		replies[i] = receive(conn.Conn, until)
		if conn.Err() != nil { // it will not say more than this
			fill(replies[i:], replies[i].Err)
			break
		}
		conn.doubt(replies[i].Err)
	}
	s.giveBack(ctx, conn, replies[len(replies)-1].Err)
}

func (s *source) replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) (last redisstore.Reply) {
	ms, err := strconv.Atoi(wait[2])
	var conn *conn
	if err == nil {
		conn, err = s.send(ctx, cmd, wait)
	}
	if err != nil {
		answered(redisstore.Reply{Err: err})
		return redisstore.Reply{Err: err}
	}
	defer func() { s.giveBack(ctx, conn, last.Err) }()
	first := receive(conn.Conn, limit(ctx))
	answered(first)
	if conn.Err() != nil {
		return first
	}
	conn.doubt(first.Err)
	return receive(conn.Conn, time.Now().Add(ioTimeout+time.Duration(ms)*time.Millisecond))
}

// limit is when a call ends that begins now.
func limit(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(ioTimeout)
}

// send puts commands on a connection of the pool, which is the caller's then. redigo
// sends nothing twice.
func (s *source) send(ctx context.Context, cmds ...redisstore.Cmd) (*conn, error) {
	conn, err := s.take(ctx)
	if err != nil {
		return nil, failure(err)
	}
	for _, cmd := range cmds {
		if err == nil {
			err = conn.Send(cmd[0], arguments(cmd[1:])...)
		}
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		s.giveBack(ctx, conn, err)
		return nil, failure(err)
	}
	return conn, nil
}

func arguments(cmd redisstore.Cmd) []any {
	args := make([]any, len(cmd))
	for i, arg := range cmd {
		args[i] = arg
	}
	return args
}

func receive(conn redis.Conn, until time.Time) redisstore.Reply {
	// To redigo, zero is for ever.
	value, err := redis.ReceiveWithTimeout(conn, max(time.Until(until), time.Nanosecond))
	if err != nil {
		return redisstore.Reply{Err: failure(err)}
	}
	return redisstore.Reply{Value: plain(value)}
}

// plain makes a value of redigo one of redisstore, in place.
func plain(value any) any {
	switch v := value.(type) {
	case []byte:
		return string(v)
	case redis.Error:
		return redisstore.ServerError(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return value
}

func fill(replies []redisstore.Reply, err error) {
	for i := range replies {
		replies[i] = redisstore.Reply{Err: err}
	}
}

// failure tells errors of redigo in the words of redisstore.
func failure(err error) error {
	const closed = "redigo: get on closed pool" // it has no name
	var server redis.Error
	switch {
	case err.Error() == closed:
		return fmt.Errorf("%w: %w", redisstore.ErrClosed, err)
	case errors.As(err, &server):
		return redisstore.ServerError(server)
	}
	return err
}
