// Package rueidisstore keeps claims on Redis through a rueidis client that you have:
//
//	locks := dibs.New(rueidisstore.New(client))
//
// It neither builds nor closes the client, and works with its settings as they are:
// standalone, Sentinel, Cluster, TLS, RESP2 or RESP3.
//
// It sends over connections from the client's pool for blocking commands, four as a rule,
// and not over those on which rueidis gathers the commands of all. dibs gathers its own;
// and when a call has had no answer in time its connection is closed, which would take
// the commands of others with it, or, once rueidis gathers, is not done for eleven seconds,
// longer than many a lease lasts. Leave room in BlockingPoolSize, for a connection to
// listen on too.
//
// With Sentinel set SentinelOption.TopologyRefreshInterval, to 100 ms say. Without it
// rueidis waits for what the one sentinel tells that it listens to, which may learn of a
// promotion a second or two after it.
//
// WithReplicas takes a connection for each write, and asks it twice: rueidis tells
// the replies of one pipeline only when it has all of them, and who is refused would
// wait for the replicas too.
package rueidisstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/links"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/rueidis"
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

// New returns a store on a client. It does no I/O. With a nil client each call returns
// dibs.ErrInvalid.
func New(client rueidis.Client, options ...Option) *redisstore.Store {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return redisstore.New(redisstore.Invalid("the rueidis client is nil"), options...)
	}
	c := &conn{client: client, sharded: client.Mode() == rueidis.ClientModeCluster}
	own := redisstore.Prompt()
	if c.sharded {
		own = redisstore.Sharded() // and not prompt: it may stop to look for the owner of a slot
	}
	return redisstore.New(c, append([]Option{own}, options...)...)
}

const (
	ioTimeout   = 3 * time.Second // of one round trip, with the time to connect
	pingEvery   = time.Second     // on a subscription
	pingTimeout = time.Second
)

type conn struct {
	client  rueidis.Client
	sharded bool
	newer   atomic.Pointer[owners] // after a failover
	given   bound                  // for calls that have a deadline
	usual   bound                  // for those that have none
}

// Do implements redisstore.Conn.
func (c *conn) Do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	c.do(ctx, c.client, cmds, replies)
}

func (c *conn) do(ctx context.Context, client rueidis.Client, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	ctx = c.bound(ctx)
	if len(cmds) == 1 {
		one := command(client.B(), cmds[0])
		result := c.newer.Load().of(client, one).Do(ctx, one)
		if links.Broken(result.NonRedisError()) {
			c.sweep(ctx, client, cmds[0])
		}
		replies[0] = c.reply(result)
		return
	}
	if c.sharded { // DoMulti panics where a slot on its way makes it ask another node
		var each sync.WaitGroup
		for i, cmd := range cmds {
			each.Go(func() { c.do(ctx, client, []redisstore.Cmd{cmd}, replies[i:i+1]) })
		}
		each.Wait()
		return
	}
	batch := make([]rueidis.Completed, len(cmds))
	for i, cmd := range cmds {
		batch[i] = command(client.B(), cmd)
	}
	results := client.DoMulti(ctx, batch...)
	if links.Broken(results[0].NonRedisError()) {
		c.sweep(ctx, client, cmds[0])
	}
	for i, result := range results {
		replies[i] = c.reply(result)
	}
}

// sweep closes connections that ended while they were idle, which rueidis does not
// notice, until one answers. A proxy or a server that restarts ends all of them, and the
// caller, who asks again, has no time to meet each.
func (c *conn) sweep(ctx context.Context, client rueidis.Client, cmd redisstore.Cmd) {
	for ctx.Err() == nil {
		one := probe(client.B(), cmd)
		if !links.Broken(c.newer.Load().of(client, one).Do(ctx, one).NonRedisError()) {
			return
		}
	}
}

// probe is a command without effect that takes the way of another one.
func probe(b rueidis.Builder, cmd redisstore.Cmd) rueidis.Completed {
	if key, ok := keyOf(cmd); ok {
		return b.Arbitrary("EXISTS").Keys(key).Blocking()
	}
	return b.Arbitrary("PING").Blocking()
}

// bound returns a context that ends soon after the deadline of a call, or in the usual
// time, and has the call's values.
func (c *conn) bound(ctx context.Context) context.Context {
	if at, ok := ctx.Deadline(); ok {
		return valued{c.given.by(at), ctx}
	}
	return valued{c.usual.by(time.Now().Add(ioTimeout)), ctx}
}

// valued is a context with the values of another one.
type valued struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (v valued) Value(key any) any { return v.values.Value(key) }

// A bound is a context for all calls that end at about the same time: rueidis looks at
// Deadline or at Done, depending on what its connection has been through, and a timer
// for each call, set and stopped again, would be a good part of what a lock costs.
type bound struct{ last atomic.Pointer[moment] }

type moment struct {
	at     time.Time
	ctx    context.Context
	cancel context.CancelFunc // not called: it ends soon, and others may have it
}

func (b *bound) by(at time.Time) context.Context {
	const soon = 20 * time.Millisecond
	if m := b.last.Load(); m != nil && !m.at.Before(at) && m.at.Sub(at) <= soon {
		return m.ctx
	}
	m := &moment{at: at.Add(soon)}
	m.ctx, m.cancel = context.WithDeadline(context.Background(), m.at)
	b.last.Store(m)
	return m.ctx
}

// command names the key of a script, which leads to its server; all else may go to any
// one. One key is enough: they are of one slot, and the builder would panic if not,
// where a server says CROSSSLOT. It calls the command a blocking one: see the package.
// rueidis repeats none that it has not built itself as one that only reads.
func command(b rueidis.Builder, cmd redisstore.Cmd) rueidis.Completed {
	key, ok := keyOf(cmd)
	if !ok {
		return b.Arbitrary(cmd...).Blocking()
	}
	return b.Arbitrary(cmd[:keys]...).Keys(key).Args(cmd[keys+1:]...).Blocking()
}

// keys is where those of a script begin in its call.
const keys = 3

// keyOf returns the first key of a script.
func keyOf(cmd redisstore.Cmd) (key string, ok bool) {
	scripted := cmd[0] == "EVALSHA" || cmd[0] == "EVAL"
	if !scripted || len(cmd) <= keys || cmd[keys-1] == "0" {
		return "", false
	}
	return cmd[keys], true
}

// Replicate implements redisstore.Conn.
func (c *conn) Replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) redisstore.Reply {
	line, release := c.client.Dedicate()
	defer release()
	ms, err := strconv.Atoi(wait[2])
	if err != nil {
		return redisstore.Reply{Err: err}
	}
	reply := c.ask(ctx, line, cmd, ioTimeout)
	if !answered(reply) {
		return reply
	}
	return c.ask(ctx, line, wait, ioTimeout+time.Duration(ms)*time.Millisecond)
}

// ask sends a command down one line, and closes that if it does not answer.
func (c *conn) ask(ctx context.Context, line rueidis.DedicatedClient, cmd redisstore.Cmd, within time.Duration) redisstore.Reply {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	result := line.Do(ctx, command(line.B(), cmd))
	if err := result.NonRedisError(); err != nil {
		line.Close()
		if links.Broken(err) {
			c.sweep(ctx, c.client, cmd)
		}
	}
	return c.reply(result)
}

func (c *conn) reply(result rueidis.RedisResult) redisstore.Reply {
	if err := result.NonRedisError(); err != nil {
		return redisstore.Reply{Err: c.failure(err)}
	}
	message, _ := result.ToMessage() // its error is part of it
	v, err := value(&message)
	return redisstore.Reply{Value: v, Err: err}
}

// failure tells errors of rueidis in the words of redisstore. A server that lets nobody
// connect is told of by each call. Of a connection that it has replaced, after a failover
// say, rueidis says what it says of a closed client, so that is asked a few times more.
func (c *conn) failure(err error) error {
	if refusal, ok := rueidis.IsRedisErr(err); ok {
		return redisstore.ServerError(refusal.Error())
	}
	if !errors.Is(err, rueidis.ErrClosing) {
		return err
	}
	const tries, pause = 5, 20 * time.Millisecond
	for range tries {
		if !errors.Is(c.ping(), rueidis.ErrClosing) {
			return fmt.Errorf("a connection was replaced: %w", err)
		}
		time.Sleep(pause) // the new master may be about to take its place
	}
	return fmt.Errorf("%w: %w", redisstore.ErrClosed, err)
}

func (c *conn) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	return c.client.Do(ctx, command(c.client.B(), redisstore.Cmd{"PING"})).Error()
}
