package redigostore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/internal/links"
	"github.com/gomodule/redigo/redis"
)

// subscribe subscribes on a connection that is dialled as the pool does, but does not
// belong to it. A connection of the pool would be occupied permanently. To put it back,
// redigo would wait for the reply to UNSUBSCRIBE, which an unresponsive server never
// sends.
func (s *source) subscribe(ctx context.Context, channel string, on func(message string)) error {
	conn, err := dial(ctx, s.Pool)
	if err != nil {
		return convertError(err)
	}
	var pings sync.WaitGroup
	defer pings.Wait()
	pinging, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	sub := redis.PubSubConn{Conn: conn}
	if err := sub.Subscribe(channel); err != nil {
		return convertError(err)
	}
	// redigo allows one concurrent writer and reader. A read that times out breaks the
	// connection, so a ping must make the server reply before that.
	pings.Go(func() { ping(pinging, sub) })
	err = receiveAll(sub, on)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if links.Broken(err) {
		s.sweep(ctx)
	}
	return convertError(err)
}

func receiveAll(sub redis.PubSubConn, on func(message string)) error {
	for {
		switch m := sub.ReceiveWithTimeout(2 * pingInterval).(type) {
		case redis.Subscription:
			on("")
		case redis.Message:
			on(string(m.Data))
		case error:
			return m
		}
	}
}

// ping pings the server every second, so that its replies show that it is alive.
func ping(ctx context.Context, sub redis.PubSubConn) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if sub.Ping("") != nil {
				return // the reader gets an error, too
			}
		case <-ctx.Done():
			return
		}
	}
}

var errNoDial = errors.New("the redigo pool has neither Dial nor DialContext")

// dial opens a connection as the pool does. It abandons a Dial that does not return in
// time, and closes the connection that it returns later.
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
