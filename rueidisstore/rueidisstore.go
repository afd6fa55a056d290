// Package rueidisstore stores locks in Redis through your rueidis client:
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{
//		InitAddress: []string{"10.0.0.1:6379"},
//	})
//	// …
//	locks := dibs.New(rueidisstore.New(client))
//
// The client remains yours: the store never closes it. You should close the dibs.Client before the
// rueidis client. RESP2 and RESP3 both work.
//
// # One server, Sentinel, Cluster
//
// [New] takes rueidis.NewClient's client for any of these setups:
//   - A single server, with or without replicas: its address as the only InitAddress. TLS
//     (ClientOption.TLSConfig) and Unix sockets (rueidis.ParseURL) work as usual.
//   - Sentinel: the sentinels as InitAddress, and SentinelOption.MasterSet. Also set
//     SentinelOption.TopologyRefreshInterval, for example to 100 ms. Without this setting, rueidis
//     listens to a single sentinel, which may detect a promotion 1 to 2 s late.
//   - Redis Cluster: some of its nodes as InitAddress; rueidis finds the others. After a
//     failover the store loads the slot map itself, because rueidis reloads it only once
//     a second.
//
// If you set SendToReplicas, it must return false for EVAL and EVALSHA, because replicas
// reject the scripts. The examples below show each setup.
//
// # Connections
//
// The store uses the client's pool for blocking commands (BlockingPoolSize), not the connections on
// which rueidis pipelines all callers' commands. dibs pipelines its own commands. If a call on a
// shared connection times out, rueidis closes this connection, which fails other callers' commands.
// On a connection already used for pipelining it returns only after 11 s instead, which is longer
// than many leases last.
//
// The pool needs room for up to 4 connections for locking and unlocking, and for a subscription to
// notifications. On a cluster each request in a batch uses its own connection, from its node's
// pool.
//
// rueidis pings each idle connection once a second (Dialer.KeepAlive). So it discards an ended
// connection only 1 to 2 s later. When the store gets such a connection before that, it also closes
// the other ended connections.
//
// rueidis 1.0.79 can panic if a command's context ends during a new connection's set-up, and the
// server already sent an error. Redis sends an error when there are too many clients. The store's
// contexts do not end at that time. Your own commands' contexts can: see docs/redis.md.
//
// [redisstore.WithReplicas] uses another connection for each call, and two round trips instead of
// one. rueidis returns a pipeline's replies only together. In a single round trip, a caller that
// finds the lock held would also wait for the replicas.
//
// # Hooks
//
// A client that wraps another client, such as rueidishook's and rueidisotel's, sees every command
// with the caller's context values. A batch with several callers' commands uses the context values
// from the first caller that does not extend leases. Retries in the background use their call's
// values, and renewals have none.
//
// # Timeouts
//
// Each command ends shortly after the call's deadline, but not before 3 s, and after 8 s at the
// latest. ClientOption.ConnWriteTimeout does not apply to these commands, because they are marked
// as blocking. Dialer.Timeout applies to connecting.
//
// Taking a connection for the subscription or for [redisstore.WithReplicas] cannot be cancelled,
// because rueidis accepts no context there. Callers do not wait for the connection beyond their own
// time limits. Closing an unresponsive subscription takes a second.
package rueidisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

// New returns a store on a rueidis client. It performs no I/O. With a nil client, every call to the
// store returns dibs.ErrInvalid.
func New(client rueidis.Client, options ...redisstore.Option) *redisstore.Store {
	if driver.IsNil(client) {
		return redisstore.New(redisconn.Invalid("rueidisstore.New: the rueidis client is nil"), options...)
	}
	return redisstore.New(newConn(client), options...)
}

const (
	ioTimeout    = 3 * time.Second // for a round trip, including the time to connect
	pingInterval = time.Second     // on a subscription
	pingTimeout  = time.Second
)

type conn struct {
	client  rueidis.Client
	sharded bool
	newer   atomic.Pointer[slotMap] // loaded after a failover

	withDeadline, withoutDeadline contextCache // for calls with and without a deadline

	calls  calls
	probes probeLimit
}

func newConn(client rueidis.Client) *conn {
	return &conn{client: client, sharded: client.Mode() == rueidis.ClientModeCluster}
}

// Traits implements redisconn.Conn. On a cluster Do may reload the slot map first.
func (c *conn) Traits() redisconn.Traits {
	return redisconn.Traits{Cluster: c.sharded, KeepsUntil: !c.sharded}
}

// Do implements redisconn.Conn.
func (c *conn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.do(ctx, until, c.client, cmds, replies)
}

func (c *conn) do(ctx context.Context, until time.Time, client rueidis.Client, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if until.IsZero() && redisconn.Loads(cmds) {
		until = time.Now().Add(redisconn.LoadTimeout)
	}
	ctx = c.bounded(ctx, until)
	if len(cmds) == 1 {
		one := command(client.B(), cmds[0])
		call := c.calls.begin(ctx)
		result := c.newer.Load().of(client, one).Do(call, one)
		call.end()
		if redisconn.Broken(result.NonRedisError()) {
			c.sweep(ctx, client, cmds[0])
		}
		replies[0] = c.reply(ctx, result)
		return
	}
	if c.sharded { // DoMulti panics if a migrating slot redirects it to another node
		var each sync.WaitGroup
		for i, cmd := range cmds {
			each.Go(func() { c.do(ctx, until, client, []redisconn.Cmd{cmd}, replies[i:i+1]) })
		}
		each.Wait()
		return
	}
	batch := make([]rueidis.Completed, len(cmds))
	for i, cmd := range cmds {
		batch[i] = command(client.B(), cmd)
	}
	call := c.calls.begin(ctx)
	results := client.DoMulti(call, batch...)
	call.end()
	if redisconn.Broken(results[0].NonRedisError()) {
		c.sweep(ctx, client, cmds[0])
	}
	for i, result := range results {
		replies[i] = c.reply(ctx, result)
	}
}

// bounded returns a context with ctx's values. Its deadline is up to 20 ms after a time, or, if
// this time is zero, after ioTimeout or as long as the callers wait.
func (c *conn) bounded(ctx context.Context, until time.Time) context.Context {
	if !until.IsZero() {
		return withValues{c.withDeadline.until(until), ctx}
	}
	return withValues{c.withoutDeadline.until(redisconn.Until(ctx, ioTimeout, nil)), ctx}
}

// command builds a rueidis command. For a script it passes the first key, which determines the
// node; other commands can go to any node. A single key is enough, because all are in the same
// slot. If they were not, the builder would panic, while a server replies CROSSSLOT.
//
// The command is marked as blocking, so that rueidis uses the pool described in the package
// comment. rueidis retries only commands that its builder marked as read-only, so it never retries
// this command.
func command(b rueidis.Builder, cmd redisconn.Cmd) rueidis.Completed {
	key := cmd.Key()
	if key == "" {
		return b.Arbitrary(cmd.Words()...).Blocking()
	}
	name, script := "EVALSHA", cmd.Script.Hash
	if cmd.Whole {
		name, script = "EVAL", cmd.Script.Text
	}
	return b.Arbitrary(name, script, strconv.Itoa(len(cmd.Keys))).Keys(key).Args(cmd.Keys[1:]...).Args(cmd.Args...).Blocking()
}

// Replicate implements redisconn.Conn.
func (c *conn) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	dedicated, release := c.client.Dedicate()
	defer release()
	reply := c.doOn(ctx, dedicated, call, ioTimeout)
	if !answered(reply) {
		return reply
	}
	return c.doOn(ctx, dedicated, wait.Cmd(), ioTimeout+wait.Timeout)
}

// doOn sends a command on a dedicated connection, and closes it if no reply arrives.
func (c *conn) doOn(ctx context.Context, dedicated rueidis.DedicatedClient, cmd redisconn.Cmd, within time.Duration) redisconn.Reply {
	ctx = withValues{newTimedContext(time.Now().Add(within)), ctx}
	result := dedicated.Do(ctx, command(dedicated.B(), cmd))
	if err := result.NonRedisError(); err != nil {
		dedicated.Close()
		if redisconn.Broken(err) {
			c.sweep(ctx, c.client, cmd)
		}
	}
	return c.reply(ctx, result)
}

func (c *conn) reply(ctx context.Context, result rueidis.RedisResult) redisconn.Reply {
	if err := result.NonRedisError(); err != nil {
		return redisconn.Reply{Err: c.convertError(ctx, err)}
	}
	message, _ := result.ToMessage() // an error reply is part of the message
	v, err := value(&message)
	return redisconn.Reply{Value: v, Err: err}
}

// convertError converts a rueidis error to a form that redisstore recognizes. If a server rejects
// connections, each call reports it. rueidis returns ErrClosing for a closed client and also for a
// replaced connection, for example after a failover. A few pings with ctx's values distinguish the
// two.
func (c *conn) convertError(ctx context.Context, err error) error {
	if refusal, ok := rueidis.IsRedisErr(err); ok {
		return redisconn.ServerError(refusal.Error())
	}
	if !errors.Is(err, rueidis.ErrClosing) {
		return err
	}
	const tries, pause = 5, 20 * time.Millisecond
	for range tries {
		if !errors.Is(c.ping(ctx), rueidis.ErrClosing) {
			return fmt.Errorf("rueidis replaced the connection: %w", err)
		}
		time.Sleep(pause) // the connection to the new master may not be ready
	}
	return fmt.Errorf("%w: %w", redisconn.ErrClosed, err)
}

func (c *conn) ping(ctx context.Context) error {
	return c.client.Do(c.bounded(ctx, time.Time{}), command(c.client.B(), redisconn.Command("PING"))).Error()
}
