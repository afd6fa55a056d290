package redigostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

// source is a redisconn.Conn: a pool that drops stale connections. redigo itself can also return an
// ended idle connection, or a connection to a former master.
type source struct {
	*redis.Pool
	generation atomic.Uint64 // earlier connections are dropped
	own        atomic.Int64  // connections in use
	answered   atomic.Bool   // the server replied
}

// conn is a connection taken from the pool.
type conn struct {
	redis.Conn
	generation uint64
	demoted    bool // its server is no longer the master
}

// get takes a connection from the pool, until a time. If the pool is full and does not wait, get
// itself waits: a connection is free again as soon as a reply arrives.
func (s *source) get(ctx context.Context, until time.Time) (*conn, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		if ctx.Err() != nil { // redigo would panic if the pool is closed
			return nil, ctx.Err()
		}
		generation := s.generation.Load()
		c, err := s.GetContext(ctx)
		if err == nil {
			s.own.Add(1)
			return &conn{Conn: c, generation: generation}, nil
		}
		if !errors.Is(err, redis.ErrPoolExhausted) {
			return nil, err
		}
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// put returns a connection to the pool after its last reply. err is this reply's error.
func (s *source) put(ctx context.Context, c *conn, err error) {
	if c.demoted || c.generation != s.generation.Load() {
		c.discard()
	}
	s.close(c)
	if redisconn.Broken(err) {
		s.sweep(ctx)
	}
}

// close gives a connection back to the pool.
func (s *source) close(c *conn) {
	c.Close()
	s.own.Add(-1)
}

// explainEnd adds advice to a reply's error if the server never replied, and ended the connection.
func (s *source) explainEnd(err error) error {
	if s.answered.Load() {
		return err
	}
	var server redisconn.ServerError
	switch {
	case err == nil || errors.As(err, &server):
		s.answered.Store(true)
	case redisconn.Broken(err):
		return fmt.Errorf("the server has ended the connection before its first reply: if this port is for TLS, use redis.DialUseTLS, or rediss:// in a URL: %w", err)
	}
	return err
}

// FullPool implements redisconn.Pool.
func (s *source) FullPool(string) string {
	if s.MaxActive == 0 || s.IdleCount() > 0 || s.ActiveCount() < s.MaxActive || int(s.own.Load()) >= s.MaxActive {
		return ""
	}
	return fmt.Sprintf("MaxActive is %d", s.MaxActive)
}

// explain returns the error for a request without a connection.
func (s *source) explain(err error) error {
	waited := errors.Is(err, redis.ErrPoolExhausted) || err == context.DeadlineExceeded //nolint:errorlint // a dial that ends also matches
	if setting := s.FullPool(""); waited && setting != "" {
		return redisconn.PoolError(setting, err)
	}
	return convertError(err)
}

// sweep pings idle connections until one answers, which closes the ended connections. A restarted
// proxy or server ends all connections; a caller that retries has no time to fail once on each.
func (s *source) sweep(ctx context.Context) {
	until := time.Now().Add(ioTimeout)
	if at := deadline(ctx); at.Before(until) {
		until = at
	}
	for s.IdleCount() > 0 && time.Now().Before(until) {
		c, err := s.get(ctx, until)
		if err != nil {
			return
		}
		_, err = redis.DoWithTimeout(c.Conn, max(time.Until(until), time.Nanosecond), "PING")
		s.close(c)
		if !redisconn.Broken(err) {
			return
		}
	}
}

// dropConns closes all idle connections, and those in use when they are put back.
func (s *source) dropConns(ctx context.Context) {
	s.generation.Add(1)
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	for range s.IdleCount() {
		c, err := s.get(ctx, deadline(ctx))
		if err != nil {
			return
		}
		c.discard()
		s.close(c)
	}
}

// checkMaster marks the connection as demoted if err says that its server is a read-only replica. A
// new connection may lead to the master.
func (c *conn) checkMaster(err error) {
	var server redisconn.ServerError
	if errors.As(err, &server) && strings.Contains(string(server), "READONLY ") { // a script may add a prefix
		c.demoted = true
	}
}

// discard makes a connection fail, so that its pool does not keep it.
func (c *conn) discard() {
	past, cancel := context.WithDeadline(context.Background(), time.Time{})
	defer cancel()
	_, _ = redis.ReceiveContext(c.Conn, past)
}
