package redigostore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/internal/links"
	"github.com/gomodule/redigo/redis"
)

// subscribe listens on a connection that the pool dials but does not count: one that
// listens for ever would be missing there, and to give it back redigo reads until the
// server has said that it listens no more, which a mute one never does.
func (s *source) subscribe(ctx context.Context, channel string, on func(message string)) error {
	conn, err := dial(ctx, s.Pool)
	if err != nil {
		return failure(err)
	}
	var pings sync.WaitGroup
	defer pings.Wait()
	listening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	sub := redis.PubSubConn{Conn: conn}
	if err := sub.Subscribe(channel); err != nil {
		return failure(err)
	}
	// One may write while another one reads. A read that has timed out breaks the
	// connection, so a ping must come before that.
	pings.Go(func() { ping(listening, sub) })
	err = listen(sub, on)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if links.Broken(err) {
		s.sweep(ctx)
	}
	return failure(err)
}

func listen(sub redis.PubSubConn, on func(message string)) error {
	for {
		switch m := sub.ReceiveWithTimeout(2 * pingEvery).(type) {
		case redis.Subscription:
			on("")
		case redis.Message:
			on(string(m.Data))
		case error:
			return m
		}
	}
}

// ping has the server say something from time to time.
func ping(ctx context.Context, sub redis.PubSubConn) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if sub.Ping("") != nil {
				return // the reader sees it too
			}
		case <-ctx.Done():
			return
		}
	}
}

var errNoDial = errors.New("the pool has neither Dial nor DialContext")

// dial makes a connection as the pool does. It leaves a Dial that does not return in
// time, and closes what comes of it.
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
