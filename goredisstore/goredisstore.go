// Package goredisstore stores locks in Redis through your go-redis client:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379"})
//	locks := dibs.New(goredisstore.New(rdb))
//
// The client remains yours: the store never closes it. You should close the dibs.Client before the
// go-redis client.
//
// # One server, Sentinel, Cluster
//
// [New] takes the go-redis client for any of these setups:
//   - A single server, with or without replicas: redis.NewClient. TLS (Options.TLSConfig) and
//     Unix sockets (Options.Network "unix") work as usual.
//   - Sentinel: redis.NewFailoverClient. Do not use redis.NewFailoverClusterClient: dibs
//     treats its client as a cluster and does not detect a failover there.
//   - Redis Cluster: redis.NewClusterClient. After a failover the store makes the client
//     reload its slot map, which go-redis does only once a minute.
//
// Package [github.com/dibslock/dibs/goredisstore/redisurl] creates each of these clients from a
// URL. The examples below show each setup.
//
// # Connections
//
// Locking and unlocking normally use up to 4 connections of the client's pool at a time, however
// many goroutines lock. On a cluster they use up to 4 for each hash slot with requests in flight,
// from the pool of the slot's node. With [redisstore.WithReplicas] each call uses a connection
// until the replicas acknowledge the write. Another connection, outside the pool, is a subscription
// for notifications.
//
// A pool without a free connection delays requests. It does not delay callers beyond their own time
// limits. On a single server and with Sentinel, pipelines use the same pool as single commands; on
// a cluster, go-redis' pool for pipelines (Options.PipelinePoolSize). A timeout names the pool if
// other work uses all connections.
//
// As long as no server ever replied, a failure can open another connection, to find out whether
// only one side uses TLS. Connections from your own Dialer are not examined unless they are TCP
// connections.
//
// # Hooks
//
// The client's hooks (redis.Hook, for tracing, metrics or circuit breakers) see every dibs command
// once, with the caller's context values. A pipeline with several callers' commands uses the
// context values from the first caller that does not extend leases. Retries in the background use
// their call's values, and renewals have none. A hook added later takes effect within a second.
//
// On a cluster, the commands of [redisstore.WithReplicas] run the hooks of the nodes
// (redis.ClusterClient.OnNewNode), not those of the cluster client. A subscription runs only
// DialHook; go-redis offers no other hook for it.
//
// # Timeouts and retries
//
// dibs limits each call itself, because go-redis' reads do not end with their context. On a single
// server and with Sentinel, the store replaces ReadTimeout and WriteTimeout. The new value is 1 s
// (100 ms for the first attempt while there is little traffic), plus the timeout of
// [redisstore.WithReplicas]. It is 8 s if a caller waits longer than 1 s, as renewals do. On a
// cluster, your ReadTimeout and WriteTimeout apply. A connection that does not answer is lost to
// the pool for that time; the caller does not wait for it. DialTimeout and PoolTimeout are always
// yours.
//
// MaxRetries does not apply to dibs' commands: dibs retries them itself, because it must know
// whether the first attempt can have been executed. On a single server and with Sentinel, it does
// not apply to the handshake on dibs' connections either.
package goredisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/go-redis/v9"
)

// New returns a store on a go-redis client. It performs no I/O.
//
// rdb must be a *redis.Client or a *redis.ClusterClient. With nil or any other type, every call to
// the store returns dibs.ErrInvalid. The type redis.Ring is unsafe for locks: when a server does
// not answer, a Ring uses another server for the key, where the lock is free. Other
// redis.UniversalClient implementations are rejected because they can route keys in any way.
func New(rdb redis.UniversalClient, options ...redisstore.Option) *redisstore.Store {
	if driver.IsNil(rdb) {
		return redisstore.New(redisconn.Invalid("goredisstore.New: the go-redis client is nil"), options...)
	}
	switch rdb := rdb.(type) {
	case *redis.Client:
		return redisstore.New(newServerConn(rdb), options...)
	case *redis.ClusterClient:
		return redisstore.New(newClusterConn(rdb), options...)
	}
	reason := fmt.Sprintf("the client has the unsupported type %T: use a *redis.Client (one server or Sentinel) or a *redis.ClusterClient", rdb)
	return redisstore.New(redisconn.Invalid(reason), options...)
}

const (
	ioTimeout    = time.Second            // for a read or write, unless a caller waits longer
	shortTimeout = 100 * time.Millisecond // for a read or write in a call with a deadline
	pingInterval = time.Second            // on an idle subscription
)

type conn struct {
	rdb     sender
	short   sender // for calls with a deadline
	patient sender // for callers that wait longer, such as renewals
	long    sender // for script texts
	client  redis.UniversalClient

	single  *redis.Client        // nil on a cluster
	cluster *redis.ClusterClient // nil off a cluster

	busy     atomic.Int64 // calls to Do and Replicate
	tlsProbe *tlsProbe
	answered atomic.Bool // a server replied
}

// newServerConn returns a Conn for a single server or Sentinel. Its I/O timeout is not longer than
// a store operation, so that a few unresponsive connections cannot exhaust the pool.
func newServerConn(rdb *redis.Client) *conn {
	return &conn{
		rdb: withTimeout(rdb, ioTimeout), short: withTimeout(rdb, shortTimeout), patient: withTimeout(rdb, redisconn.PatientTimeout), long: withTimeout(rdb, redisconn.LoadTimeout),
		client: clone(rdb, ioTimeout), single: rdb, tlsProbe: newTLSProbe(rdb),
	}
}

func newClusterConn(rdb *redis.ClusterClient) *conn {
	return &conn{rdb: printingSender{rdb}, short: printingSender{rdb}, patient: printingSender{rdb}, long: printingSender{rdb}, client: rdb, cluster: rdb, tlsProbe: newClusterTLSProbe(rdb)}
}

// command is a command that go-redis sends at most once: dibs must know whether an earlier attempt
// can have been executed. If go-redis silently repeated a release, the second reply would be that
// the lock is not held.
type command struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (command) NoRetry() bool { return true }

// Traits implements redisconn.Conn. A cluster client may wait for the map of slots first.
func (c *conn) Traits() redisconn.Traits {
	return redisconn.Traits{Cluster: c.cluster != nil, KeepsUntil: c.cluster == nil}
}

// Do implements redisconn.Conn.
func (c *conn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	bounded := !until.IsZero()
	if bounded && !c.hasIdleConn() {
		fill(replies, redisconn.ErrUnsent)
		return
	}
	c.busy.Add(1)
	defer c.busy.Add(-1)
	switch {
	case bounded:
		do(ctx, c.short, cmds, replies)
	case redisconn.Loads(cmds):
		c.do(ctx, c.long, cmds, replies)
	case time.Until(redisconn.Until(ctx, ioTimeout, cmds)) > ioTimeout:
		c.do(ctx, c.patient, cmds, replies)
	default:
		c.do(ctx, c.rdb, cmds, replies)
	}
	for i := range replies {
		c.reloadAfter(replies[i].Err)
	}
}

// do sends commands. While no server has replied, it finds out whether TLS is the reason.
func (c *conn) do(ctx context.Context, rdb sender, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if c.answered.Load() {
		do(ctx, rdb, cmds, replies)
		return
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(probeAfter, func() {
		if found := c.tlsProbe.run(); found != nil {
			cancel(found)
		}
	})
	do(within, rdb, cmds, replies)
	late.Stop()
	err := replies[0].Err
	var server redisconn.ServerError
	if err == nil || errors.As(err, &server) {
		c.answered.Store(true)
		return
	}
	var found *redisconn.TLSMismatchError
	if errors.As(context.Cause(within), &found) {
		fill(replies, found)
	} else if redisconn.Broken(err) || redisconn.IsTimeout(err) {
		if err := c.tlsProbe.run(); err != nil {
			fill(replies, err)
		}
	}
}

func do(ctx context.Context, rdb sender, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if len(cmds) == 1 {
		cmd := newCommand(ctx, cmds[0])
		_ = rdb.Process(ctx, cmd) // the error is also in cmd
		replies[0] = reply(cmd)
		return
	}
	sent := make([]command, len(cmds))
	pipe := rdb.Pipeline()
	for i, cmd := range cmds {
		sent[i] = newCommand(ctx, cmd)
		_ = pipe.Process(ctx, sent[i]) // only queues
	}
	_, err := pipe.Exec(ctx) // a command's error is also in the command
	for i, cmd := range sent {
		if replies[i] = reply(cmd); err != nil && withoutOutcome(cmd) {
			replies[i].Err = convertError(err)
		}
	}
}

// withoutOutcome reports whether a command has neither a reply nor an error. In this case a user's
// hook stopped the pipeline, and only the pipeline has the error. A nil reply has the error
// redis.Nil.
func withoutOutcome(cmd command) bool { return cmd.Err() == nil && cmd.Val() == nil }

// reloadAfter makes a cluster client reload the slot map after a connection error or a
// MOVED reply. go-redis reloads it by itself only once a minute, and keeps sending to a
// dead node until then (redis/go-redis#3979). It reloads at most five times a second.
func (c *conn) reloadAfter(err error) {
	if err == nil || c.cluster == nil {
		return
	}
	var server redisconn.ServerError
	if !errors.As(err, &server) || strings.HasPrefix(string(server), "MOVED") {
		c.cluster.ReloadState(context.Background())
	}
}

// Refresh implements redisconn.Refresher. It reloads the slot map at once, and tries
// again, on any node, each time 100 ms have passed without an answer.
func (c *conn) Refresh() {
	const tries, patience = 5, 100 * time.Millisecond
	if c.cluster == nil {
		return
	}
	reloaded := make(chan error, tries)
	for range tries {
		go func() {
			reloaded <- c.cluster.ForEachMaster(context.Background(), func(context.Context, *redis.Client) error { return nil })
		}()
		select {
		case err := <-reloaded:
			if err == nil {
				return
			}
		case <-time.After(patience):
		}
	}
}

// Replicate implements redisconn.Conn.
func (c *conn) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	first := notifyingCmd{printable: printable{newCommand(ctx, call)}}
	first.answered = sync.OnceFunc(func() { answered(reply(first.command)) })
	acks := newCommand(ctx, wait.Cmd())
	rdb, err := c.masterFor(ctx, call.Key(), wait.Timeout)
	if err != nil {
		first.SetErr(err)
		acks.SetErr(err)
	} else {
		pipe := rdb.Pipeline()
		_ = pipe.Process(ctx, first) // only queues
		_ = pipe.Process(ctx, acks)
		_, _ = pipe.Exec(ctx) // a command's error is also in the command
		first.answered()      // in case a user's hook dropped the command
	}
	c.reloadAfter(reply(first.command).Err)
	return reply(acks)
}

// notifyingCmd is a command that calls answered when its reply arrives. go-redis calls SetErr, with
// nil or an error, as soon as it has read the reply, and before it reads the next command's reply.
type notifyingCmd struct {
	printable
	answered func()
}

// SetErr implements redis.Cmder.
func (n notifyingCmd) SetErr(err error) {
	n.command.SetErr(err)
	n.answered()
}

// masterFor returns a client for a key's master. Its read timeout includes WAIT's timeout.
func (c *conn) masterFor(ctx context.Context, key string, wait time.Duration) (sender, error) {
	master := c.single
	if c.cluster != nil {
		var err error
		if master, err = c.cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	return withTimeout(master, ioTimeout+wait), nil
}

// hasIdleConn reports whether a request gets a connection at once. The request's deadline does not
// bound a wait for a connection.
func (c *conn) hasIdleConn() bool { return c.client.PoolStats().IdleConns > 0 }

// FullPool implements redisconn.Pool.
func (c *conn) FullPool(key string) string {
	server, busy := c.single, int(c.busy.Load())
	if c.cluster != nil {
		busy = 0 // calls also wait for the slot map, and use other nodes
		ended, cancel := context.WithCancel(context.Background())
		cancel() // so that it only looks at the slot map
		var err error
		if server, err = c.cluster.MasterForKey(ended, key); err != nil {
			return ""
		}
	}
	stats, size := server.PoolStats(), server.Options().PoolSize
	own := busy - int(stats.PendingRequests) // have a connection, at least
	if stats.IdleConns > 0 || stats.PendingRequests == 0 || int(stats.TotalConns) < size || own >= size {
		return ""
	}
	return fmt.Sprintf("PoolSize is %d", size)
}

func fill(replies []redisconn.Reply, err error) {
	for i := range replies {
		replies[i].Err = err
	}
}

// newCommand returns a go-redis command. Pointers to strings and small numbers as arguments cost no
// allocation.
func newCommand(ctx context.Context, cmd redisconn.Cmd) command {
	args := make([]any, 0, 3+len(cmd.Keys)+len(cmd.Args))
	if cmd.Script != nil {
		name, script := cmd.Call()
		args = append(args, name, script, len(cmd.Keys))
	}
	for i := range cmd.Keys {
		args = append(args, &cmd.Keys[i])
	}
	for i := range cmd.Args {
		args = append(args, &cmd.Args[i])
	}
	return command{redis.NewCmd(ctx, args...)}
}

func reply(cmd command) redisconn.Reply {
	value, err := cmd.Result()
	if err == nil {
		return redisconn.Reply{Value: value}
	}
	if errors.Is(err, redis.Nil) {
		return redisconn.Reply{}
	}
	return redisconn.Reply{Err: convertError(err)}
}

// Subscribe implements redisconn.Conn.
func (c *conn) Subscribe(ctx context.Context, channel string, busy func() bool, on func(message string)) error {
	sub := c.client.Subscribe(ctx, channel)
	defer sub.Close()
	// A read does not end with ctx, so close the connection.
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	for pinged := false; ; {
		message, err := sub.ReceiveTimeout(ctx, pingInterval)
		var timeout net.Error
		switch {
		case err == nil:
			pinged = false
			deliver(message, on)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			if pinged = busy(); !pinged {
				continue
			}
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		default:
			return convertError(err)
		}
	}
}

func deliver(message any, on func(string)) {
	switch m := message.(type) {
	case *redis.Subscription:
		on("")
	case *redis.Message:
		on(m.Payload)
	}
}

// convertError converts a go-redis error to a form that redisstore recognizes.
func convertError(err error) error {
	var server redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", redisconn.ErrClosed, err)
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return redisconn.PoolError("PoolSize, MaxActiveConns", err)
	case errors.As(err, &server):
		return redisconn.ServerError(err.Error())
	}
	return err
}

// Masters implements redisconn.Conn.
func (c *conn) Masters(ctx context.Context, visit func(redisconn.Node) error) error {
	if c.cluster == nil {
		return visit(redisconn.Node{Do: func(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) {
			c.do(ctx, c.rdb, cmds, replies)
		}})
	}
	var mu sync.Mutex
	return convertError(c.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return visit(node(printingSender{master}, master.Options().Addr))
	}))
}

func node(rdb sender, addr string) redisconn.Node {
	return redisconn.Node{
		Addr: addr,
		Do: func(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) {
			do(ctx, rdb, cmds, replies)
		},
	}
}
