package redigostore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/links"
	"github.com/dibslock/dibs/redisstore"
	"github.com/gomodule/redigo/redis"
)

// A source is a pool whose idle connections are not believed in: redigo gives out one
// that has ended, or that leads to who was master once.
type source struct {
	*redis.Pool
	age atomic.Uint64 // of what it has: connections from before are not kept
}

// A conn is a connection on loan.
type conn struct {
	redis.Conn
	age uint64
	old bool // its server is no master any more
}

// take gets a connection. Where the pool is full and its user does not wait, it does:
// a place is free again as soon as an answer has come.
func (s *source) take(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithDeadline(ctx, limit(ctx))
	defer cancel()
	for {
		if ctx.Err() != nil { // on a closed pool redigo would panic
			return nil, ctx.Err()
		}
		age := s.age.Load()
		c, err := s.GetContext(ctx)
		if err == nil {
			return &conn{Conn: c, age: age}, nil
		}
		if !errors.Is(err, redis.ErrPoolExhausted) {
			return nil, err
		}
		select {
		case <-time.After(nextTry):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// giveBack returns a connection after its last reply.
func (s *source) giveBack(ctx context.Context, c *conn, err error) {
	if c.old || c.age != s.age.Load() {
		c.discard()
	}
	c.Close()
	if links.Broken(err) {
		s.sweep(ctx)
	}
}

// sweep closes connections that ended while they were idle, until one answers. A proxy
// or a server that restarts ends all of them, and the caller, who asks again, has no time
// to meet each.
func (s *source) sweep(ctx context.Context) {
	until := limit(ctx)
	for s.IdleCount() > 0 && time.Now().Before(until) {
		c, err := s.take(ctx)
		if err != nil {
			return
		}
		_, err = redis.DoWithTimeout(c.Conn, max(time.Until(until), time.Nanosecond), "PING")
		c.Close()
		if !links.Broken(err) {
			return
		}
	}
}

// renew closes all idle connections, and later those on loan.
func (s *source) renew(ctx context.Context) {
	s.age.Add(1)
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	for range s.IdleCount() {
		c, err := s.take(ctx)
		if err != nil {
			return
		}
		c.discard()
		c.Close()
	}
}

// doubt notes that a server says that it is not the master any more. Another connection
// may lead to the one that is.
func (c *conn) doubt(err error) {
	var server redisstore.ServerError
	if errors.As(err, &server) && strings.Contains(string(server), "READONLY ") { // a script may put words before it
		c.old = true
	}
}

// discard breaks a connection, so that its pool does not keep it.
func (c *conn) discard() {
	past, cancel := context.WithDeadline(context.Background(), time.Time{})
	defer cancel()
	_, _ = redis.ReceiveContext(c.Conn, past)
}
