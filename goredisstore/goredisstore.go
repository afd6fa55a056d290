// Package goredisstore keeps claims on Redis through a go-redis client that you have:
//
//	locks := dibs.New(goredisstore.New(rdb))
//
// It neither builds nor closes the client, and works with its settings as they
// are: standalone, Sentinel, Cluster, TLS. dibs bounds each call itself, also
// where go-redis would not heed a context.
package goredisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
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

// New returns a store on a client. It does no I/O.
//
// The client is a *redis.Client or a *redis.ClusterClient. With any other each call
// returns dibs.ErrInvalid: what a redis.UniversalClient of another kind does with a key
// is not known, and a redis.Ring moves a key to another server when one does not
// answer, where the lock is free.
func New(rdb redis.UniversalClient, options ...Option) *redisstore.Store {
	switch rdb := rdb.(type) {
	case *redis.Client:
		if rdb != nil {
			return redisstore.New(onServer(rdb), append([]Option{redisstore.Prompt()}, options...)...)
		}
	case *redis.ClusterClient:
		if rdb != nil {
			return redisstore.New(onCluster(rdb), append([]Option{redisstore.Sharded()}, options...)...)
		}
	}
	return redisstore.New(redisstore.Invalid(unfit(rdb)), options...)
}

// unfit says why locks cannot be kept through a client.
func unfit(rdb redis.UniversalClient) string {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return "the go-redis client is nil"
	}
	return fmt.Sprintf("a %T cannot hold locks: use a *redis.Client, of one server or of Sentinel, or a *redis.ClusterClient", rdb)
}

const (
	ioTimeout   = time.Second            // of one read or write
	soonTimeout = 100 * time.Millisecond // of one that has a deadline
	pingEvery   = time.Second            // on an idle subscription
)

type conn struct {
	rdb    sender
	soon   sender // for what has a deadline
	client redis.UniversalClient

	single  *redis.Client        // or
	cluster *redis.ClusterClient // what it is
}

// onServer returns a Conn that does not wait for a mute connection for longer than any
// operation lasts, so that a few such cannot use up the pool.
func onServer(rdb *redis.Client) *conn {
	return &conn{
		rdb: bind(rdb, ioTimeout), soon: bind(rdb, soonTimeout),
		client: clone(rdb, ioTimeout), single: rdb,
	}
}

func onCluster(rdb *redis.ClusterClient) *conn {
	return &conn{rdb: shown{rdb}, soon: shown{rdb}, client: rdb, cluster: rdb}
}

// once is a command that go-redis does not send twice: dibs must know whether the
// first one was lost. A release that was executed, and repeated behind its back,
// would seem to have been somebody else's.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// Do implements redisstore.Conn.
func (c *conn) Do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	rdb := c.rdb
	if _, bounded := ctx.Deadline(); bounded && c.idle() {
		rdb = c.soon
	} else if bounded {
		fill(replies, redisstore.ErrUnsent)
		return
	}
	do(ctx, rdb, cmds, replies)
	for _, r := range replies {
		c.notice(r.Err)
	}
}

func do(ctx context.Context, rdb sender, cmds []redisstore.Cmd, replies []redisstore.Reply) {
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
	_, err := pipe.Exec(ctx) // each command keeps its own error,
	for i, cmd := range sent {
		if replies[i] = reply(cmd); err != nil && unsent(cmd) {
			replies[i].Err = failure(err)
		}
	}
}

// unsent reports whether a command has no outcome: a hook of the user's has kept it, and
// told why to the pipeline only. For a reply of nil go-redis has an error.
func unsent(cmd once) bool { return cmd.Err() == nil && cmd.Val() == nil }

// notice makes a cluster's client look who has which slots, after a node was not
// reached or has sent us away. By itself go-redis does so once a minute, and until
// then asks the dead one (redis/go-redis#3979). It looks five times a second at most.
func (c *conn) notice(err error) {
	if err == nil || c.cluster == nil {
		return
	}
	var server redisstore.ServerError
	if !errors.As(err, &server) || strings.HasPrefix(string(server), "MOVED") {
		c.cluster.ReloadState(context.Background())
	}
}

// Refresh implements redisstore.Refresher: it looks at once, and asks another node too if
// the first one does not answer soon.
func (c *conn) Refresh() {
	const tries, soon = 5, 100 * time.Millisecond
	if c.cluster == nil {
		return
	}
	looked := make(chan error, tries)
	for range tries {
		go func() {
			looked <- c.cluster.ForEachMaster(context.Background(), func(context.Context, *redis.Client) error { return nil })
		}()
		select {
		case err := <-looked:
			if err == nil {
				return
			}
		case <-time.After(soon):
		}
	}
}

// Replicate implements redisstore.Conn.
func (c *conn) Replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) redisstore.Reply {
	first := told{legible: legible{command(ctx, cmd)}}
	first.tell = sync.OnceFunc(func() { answered(reply(first.once)) })
	acks := command(ctx, wait)
	rdb, err := c.serverOf(ctx, cmd[3], wait)
	if err != nil {
		first.SetErr(err)
		acks.SetErr(err)
	} else {
		pipe := rdb.Pipeline()
		_ = pipe.Process(ctx, first) // only queues
		_ = pipe.Process(ctx, acks)
		_, _ = pipe.Exec(ctx) // each command keeps its own error
		first.tell()          // a hook of the user's may have left it out
	}
	c.notice(reply(first.once).Err)
	return reply(acks)
}

// told is a command that tells when it was answered: go-redis sets its error, or nil,
// as soon as it has read the reply, before it reads that of the next one.
type told struct {
	legible
	tell func()
}

// SetErr implements redis.Cmder.
func (t told) SetErr(err error) {
	t.once.SetErr(err)
	t.tell()
}

// serverOf returns a client of the server that has a key, which reads for long enough.
func (c *conn) serverOf(ctx context.Context, key string, wait redisstore.Cmd) (sender, error) {
	ms, err := strconv.Atoi(wait[2])
	if err != nil {
		return nil, err
	}
	one := c.single
	if c.cluster != nil {
		if one, err = c.cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	return bind(one, ioTimeout+time.Duration(ms)*time.Millisecond), nil
}

// idle reports whether a request need not wait for a connection, which could last.
func (c *conn) idle() bool { return c.client.PoolStats().IdleConns > 0 }

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
	sub := c.client.Subscribe(ctx, channel)
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

// Masters implements redisstore.Conn.
func (c *conn) Masters(ctx context.Context, visit func(redisstore.Node) error) error {
	if c.cluster == nil {
		return visit(node(c.rdb, ""))
	}
	var mu sync.Mutex
	return failure(c.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return visit(node(shown{master}, master.Options().Addr))
	}))
}

func node(rdb sender, addr string) redisstore.Node {
	return redisstore.Node{
		Addr: addr,
		Do: func(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
			do(ctx, rdb, cmds, replies)
		},
	}
}
