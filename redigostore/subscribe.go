package redigostore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

// Subscribe implements redisconn.Conn, on a connection dialled like the pool's, but outside the
// pool. A connection from the pool would be occupied permanently. To put it back, redigo would wait
// for the reply to UNSUBSCRIBE, which an unresponsive server never sends.
func (s *source) Subscribe(ctx context.Context, channel string, busy func() bool, on func(message string)) error {
	conn, err := dial(ctx, s.Pool)
	if err != nil {
		return convertError(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	pinging, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	sub := redis.PubSubConn{Conn: conn}
	if err := sub.Subscribe(channel); err != nil {
		return convertError(err)
	}
	// redigo allows one concurrent writer and reader. A read that times out breaks the connection,
	// so the reads have no time limit.
	p := &pings{conn: conn, sub: sub, busy: busy}
	running.Go(func() { p.run(pinging) })
	err = p.receiveAll(func(message string) {
		if message == "" { // idle connections may still lead to the previous master
			s.dropConns(ctx)
		}
		on(message)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.unanswered.Load() {
		return errUnresponsive
	}
	if redisconn.Broken(err) {
		s.sweep(ctx)
	}
	return convertError(err)
}

// pings ping the server every second while busy, to get proof that it is alive.
type pings struct {
	conn       redis.Conn
	sub        redis.PubSubConn
	busy       func() bool
	received   atomic.Bool // something since the last ping
	unanswered atomic.Bool // the connection was closed because the server did not respond
}

func (p *pings) receiveAll(on func(message string)) error {
	const noLimit = 0
	for {
		received := p.sub.ReceiveWithTimeout(noLimit)
		p.received.Store(true)
		switch m := received.(type) {
		case redis.Subscription:
			on("")
		case redis.Message:
			on(string(m.Data))
		case error:
			return m
		}
	}
}

// run closes the connection when nothing arrived for a second after a ping.
func (p *pings) run(ctx context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for pinged := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		received := p.received.Swap(false)
		switch {
		case pinged && !received:
			p.unanswered.Store(true)
			p.conn.Close()
			return
		case !p.busy():
			pinged = false
		case p.sub.Ping("") != nil:
			return // the reader also gets an error
		default:
			pinged = true
		}
	}
}

var (
	errNoDial       = errors.New("the redigo pool has neither Dial nor DialContext")
	errUnresponsive = errors.New("the server does not respond on the connection of the subscription")
)

// dial opens a connection like the pool. It abandons a Dial that does not return in time, and
// closes its connection later.
func dial(ctx context.Context, pool *redis.Pool) (redis.Conn, error) {
	connect := pool.DialContext
	switch {
	case connect != nil:
	case pool.Dial != nil:
		connect = func(context.Context) (redis.Conn, error) { return pool.Dial() }
	default:
		return nil, errNoDial
	}
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	type result struct {
		conn redis.Conn
		err  error
	}
	dialled := make(chan result, 1)
	go func() {
		conn, err := connect(ctx)
		dialled <- result{conn, err}
	}()
	select {
	case r := <-dialled:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-dialled; r.err == nil {
				r.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}
