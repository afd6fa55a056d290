// Package goredis keeps claims on Redis through a go-redis client that you have:
//
//	locks := dibs.New(goredis.New(rdb))
//
// It neither builds nor closes the client, and works with its settings as they
// are: standalone, Sentinel, Cluster, TLS. dibs bounds each call itself, also
// where go-redis would not heed a context.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

// An Option adjusts the store.
type Option = redisstore.Option

// Prefix is put before each name to make its key. The default is "lock:"; it may
// be empty, so that names are keys, as most other libraries have it. See
// redisstore.Prefix for the keys beside these.
func Prefix(prefix string) Option { return redisstore.Prefix(prefix) }

// New returns a store on a client. It does no I/O. A redis.Ring is refused by each
// call: it moves a key to another server when one does not answer, where the lock
// is free.
func New(rdb redis.UniversalClient, options ...Option) *redisstore.Store {
	if _, ok := rdb.(*redis.Ring); ok {
		return redisstore.New(ring{}, options...)
	}
	single, ok := rdb.(*redis.Client)
	if !ok {
		c := &conn{rdb: rdb, soon: rdb}
		return redisstore.New(c, append([]Option{redisstore.Sharded()}, options...)...)
	}
	// The clones share the client's connections. They do not wait for a mute one for
	// longer than any operation lasts, so that a few such cannot use up the pool.
	c := &conn{rdb: single.WithTimeout(ioTimeout), soon: single.WithTimeout(soonTimeout)}
	return redisstore.New(c, append([]Option{redisstore.Prompt()}, options...)...)
}

const (
	ioTimeout   = time.Second            // of one read or write
	soonTimeout = 100 * time.Millisecond // of one that has a deadline
	pingEvery   = time.Second            // on an idle subscription
)

type conn struct {
	rdb  redis.UniversalClient
	soon redis.UniversalClient // for what has a deadline
}

// once is a command that go-redis does not send twice: dibs must know whether the
// first one was lost. A release that was executed, and repeated behind its back,
// would seem to have been somebody else's.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// ring refuses to work.
type ring struct{}

var errRing = fmt.Errorf("%w: a redis.Ring cannot hold locks: use a client of one server, Sentinel or Cluster", dibs.ErrInvalid)

func (ring) Do(_ context.Context, _ []redisstore.Cmd, replies []redisstore.Reply) {
	fill(replies, errRing)
}

func (ring) Subscribe(ctx context.Context, _ string, _ func(string)) error {
	<-ctx.Done()
	return errRing
}

func (ring) Scan(context.Context, string, func([]string)) error { return errRing }

// Do implements redisstore.Conn.
func (c *conn) Do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	rdb := c.rdb
	if _, bounded := ctx.Deadline(); bounded && c.idle() {
		rdb = c.soon
	} else if bounded {
		fill(replies, context.DeadlineExceeded)
		return
	}
	if len(cmds) == 1 {
		cmd := command(ctx, cmds[0])
		_ = rdb.Process(ctx, cmd) // the command keeps its error
		replies[0] = reply(cmd)
		return
	}
	sent := make([]once, len(cmds))
	pipe := rdb.Pipeline()
	for i, cmd := range cmds {
		sent[i] = command(ctx, cmd)
		_ = pipe.Process(ctx, sent[i]) // only queues
	}
	_, _ = pipe.Exec(ctx) // each command keeps its own error
	for i, cmd := range sent {
		replies[i] = reply(cmd)
	}
}

// idle reports whether a request need not wait for a connection, which could last.
func (c *conn) idle() bool { return c.soon.PoolStats().IdleConns > 0 }

func fill(replies []redisstore.Reply, err error) {
	for i := range replies {
		replies[i].Err = err
	}
}

func command(ctx context.Context, cmd redisstore.Cmd) once {
	args := make([]any, len(cmd))
	for i := range cmd {
		args[i] = &cmd[i] // a pointer costs no allocation
	}
	return once{redis.NewCmd(ctx, args...)}
}

func reply(cmd once) redisstore.Reply {
	value, err := cmd.Result()
	if err == nil {
		return redisstore.Reply{Value: value}
	}
	if errors.Is(err, redis.Nil) {
		return redisstore.Reply{}
	}
	return redisstore.Reply{Err: failure(err)}
}

// Subscribe implements redisstore.Conn.
func (c *conn) Subscribe(ctx context.Context, channel string, on func(message string)) error {
	sub := c.rdb.Subscribe(ctx, channel)
	defer sub.Close()
	// A read does not heed ctx.
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	for mute := false; ; {
		message, err := sub.ReceiveTimeout(ctx, pingEvery)
		var slow net.Error
		switch {
		case err == nil:
			mute = false
			tell(message, on)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &slow) && slow.Timeout() && !mute:
			mute = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		default:
			return failure(err)
		}
	}
}

func tell(message any, on func(string)) {
	switch m := message.(type) {
	case *redis.Subscription:
		on("")
	case *redis.Message:
		on(m.Payload)
	}
}

// failure tells errors of go-redis in the words of redisstore.
func failure(err error) error {
	var server redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", redisstore.ErrClosed, err)
	case errors.As(err, &server):
		return redisstore.ServerError(err.Error())
	}
	return err
}

// Scan implements redisstore.Conn.
func (c *conn) Scan(ctx context.Context, match string, on func(keys []string)) error {
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
		pages := make(chan []string)
		failed := make(chan error, 1)
		go func() {
			failed <- cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
				return scan(ctx, node, match, func(keys []string) { pages <- keys })
			})
			close(pages)
		}()
		for keys := range pages {
			on(keys)
		}
		return <-failed
	}
	return scan(ctx, c.rdb, match, on)
}

func scan(ctx context.Context, node redis.Cmdable, match string, on func(keys []string)) error {
	const page = 1000
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, match, page).Result()
		if err != nil {
			return failure(err)
		}
		on(keys)
		if next == 0 {
			return nil
		}
		cursor = next
	}
}
