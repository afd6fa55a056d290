//go:build linux

package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// Helpers for the tests with all primitives.

// pick returns short, or long if DIBS_LONG=1.
func pick[T any](short, long T) T {
	if os.Getenv("DIBS_LONG") == "1" {
		return long
	}
	return short
}

// setUpCluster is setUp with a cluster node.
func setUpCluster(t *testing.T) *fixture {
	t.Helper()
	server := redistest.StartClusterNode(t)
	direct := redistest.Dial(server.Addr())
	t.Cleanup(direct.Close)
	return &fixture{t: t, server: server, direct: direct, control: watchMachine(t.Context(), server.Addr())}
}

// newClusterClient is newClient with a cluster client.
func (b *fixture) newClusterClient(options ...dibs.Option) *dibs.Client {
	b.t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{b.server.Addr()}})
	b.t.Cleanup(func() { rdb.Close() })
	c := dibs.New(goredisstore.New(rdb), append([]dibs.Option{dibs.TTL(ttl)}, options...)...)
	b.t.Cleanup(func() { c.Close() })
	token, err := warm(deadline(b.t, generous), c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.awaitSubscription(token)
	return c
}

// delayedProxy returns a proxy's address, and a function that measures the round trip time through
// it. The proxy delays by 5 ms in each direction. An additional round trip takes much longer than a
// busy machine's delays.
func (b *fixture) delayedProxy() (addr string, roundTrip func() time.Duration) {
	b.t.Helper()
	proxy := b.proxy()
	proxy.Delay(5 * time.Millisecond)
	rdb := dial(b.t, &redis.Options{Addr: proxy.Addr()})
	return proxy.Addr(), func() time.Duration {
		b.t.Helper()
		var trips []time.Duration
		for range 11 { // the first may have to connect
			start := time.Now()
			if err := rdb.Ping(b.t.Context()).Err(); err != nil {
				b.t.Fatal(err)
			}
			trips = append(trips, time.Since(start))
		}
		return median(trips)
	}
}

func median(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)/2]
}

func mean(of []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(max(len(of), 1))
}

func longest(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	return slices.Max(of)
}

// acquire acquires "lock NAME", "write NAME", "read NAME", "permits NAME N LIMIT",
// "all NAME…" or "lead NAME".
func acquire(ctx context.Context, c *dibs.Client, what string, options ...dibs.Option) (*dibs.Lease, error) {
	f := strings.Fields(what)
	switch f[0] {
	case "lock":
		return c.Mutex(f[1]).Lock(ctx, options...)
	case "write":
		return c.RWMutex(f[1]).Writer().Lock(ctx, options...)
	case "read":
		return c.RWMutex(f[1]).Reader().Lock(ctx, options...)
	case "permits":
		n, err1 := strconv.Atoi(f[2])
		limit, err2 := strconv.Atoi(f[3])
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return c.Semaphore(f[1], limit).Permits(n).Lock(ctx, options...)
	case "all":
		return c.All(f[1:]).Lock(ctx, options...)
	case "lead":
		return c.Election(f[1]).Campaign(ctx, options...)
	}
	return nil, fmt.Errorf("unknown primitive %q", what)
}

func (b *fixture) acquire(c *dibs.Client, what string, options ...dibs.Option) *dibs.Lease {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), generous)
	defer cancel()
	l, err := acquire(ctx, c, what, options...)
	if err != nil {
		b.skipIfStalled(ttl / 4)
		b.t.Fatalf("%s: %v", what, err)
	}
	return l
}

// warm loads all operations' scripts into the server, so that a test's first request is like the
// others.
func (b *fixture) warm(c *dibs.Client) {
	b.t.Helper()
	l := b.acquire(c, "write warm")
	for _, err := range []error{l.Downgrade(b.t.Context()), l.TryUpgrade(b.t.Context()), l.Extend(b.t.Context(), ttl)} {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.inspect(c, "warm")
	if revoked, err := c.Revoke(b.t.Context(), "warm", dibs.Holder{Fence: l.Fence()}, ""); err != nil || !revoked {
		b.t.Fatalf("revoke: %t, %v", revoked, err)
	}
	b.await("the lease ends", l.Context().Done())
	b.unlock(b.acquire(c, "all warm warm2"))
	b.wantNoKeys()
}

// enqueueFor is enqueue for any primitive.
func (b *fixture) enqueueFor(c *dibs.Client, what string) <-chan entry {
	b.t.Helper()
	waits := make(chan struct{})
	entered := make(chan entry, 1)
	ctx, cancel := context.WithTimeout(b.t.Context(), generous)
	go func() {
		defer cancel()
		l, err := acquire(ctx, c, what, dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(waits) }}))
		entered <- entry{l, err, time.Now()}
	}()
	select {
	case <-waits:
	case e := <-entered:
		b.t.Fatalf("%s: the call does not wait: %+v", what, e)
	}
	return entered
}

func (b *fixture) inspect(c *dibs.Client, name string) dibs.State {
	b.t.Helper()
	state, err := c.Inspect(b.t.Context(), name)
	if err != nil {
		b.skipIfStalled(ttl / 4)
		b.t.Fatalf("inspect %q: %v", name, err)
	}
	return state
}

// leasesChild executes "acquire ID WHAT", "once ID NAME EVERY" and "release ID". It reports "waits
// ID", "held ID TIME FENCE LATE", "renewed TIME", "lost ID TIME REASON", "ran ID RAN ERR" and
// "released ID TIME".
func leasesChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) { emit("renewed %d", mono()) }})
	machine := watchMachine(context.Background(), o.Control)
	var mu sync.Mutex
	held := make(map[string]*dibs.Lease)
	emit("ready")
	for command := range commands {
		verb, rest, _ := strings.Cut(command, " ")
		id, what, _ := strings.Cut(rest, " ")
		switch verb {
		case "acquire":
			machine.begin()
			go func() {
				hooks := dibs.Hooks{Queued: func(context.Context, dibs.Queued) { emit("waits %s", id) }}
				l, err := acquire(context.Background(), locks, what, dibs.Observe(hooks))
				at := mono()
				if err != nil {
					emit("broken %v", err)
					return
				}
				mu.Lock()
				held[id] = l
				mu.Unlock()
				emit("held %s %d %d %d", id, at, l.Fence(), machine.late())
				<-l.Context().Done()
				at = mono()
				var lost *dibs.LostError
				if errors.As(context.Cause(l.Context()), &lost) {
					emit("lost %s %d %s", id, at, lost.Reason)
				}
			}()
		case "once":
			name, every, _ := strings.Cut(what, " ")
			d, _ := time.ParseDuration(every)
			go func() {
				ran := false
				err := locks.Once(name, d).Do(context.Background(), func(ctx context.Context) error {
					ran = true
					emit("held %s %d %d %d", id, mono(), carried.Fence(ctx), machine.late())
					<-ctx.Done()
					return nil
				})
				emit("ran %s %t %v", id, ran, err)
			}()
		case "release":
			mu.Lock()
			l := held[id]
			mu.Unlock()
			if err := l.Unlock(); err != nil && !errors.Is(err, dibs.ErrLost) {
				emit("broken %v", err)
			}
			emit("released %s %d", id, mono())
		}
	}
}

// acquire lets a child acquire something, and waits until it holds it.
func (c *child) acquire(id, what string) heldReport {
	c.t.Helper()
	c.send("acquire " + id + " " + what)
	return c.awaitHeldID(id)
}

// awaitHeldID waits for a child's report that it holds something.
func (c *child) awaitHeldID(id string) heldReport {
	c.t.Helper()
	f := c.expect("held")
	if f[0] != id {
		c.t.Fatalf("held %q, want %s", f, id)
	}
	return heldReport{at: number(c.t, f[1]), fence: uint64(number(c.t, f[2])), late: number(c.t, f[3])}
}

// enqueue lets a child acquire something, and returns when it is in the wait queue.
func (c *child) enqueue(id, what string) {
	c.t.Helper()
	c.send("acquire " + id + " " + what)
	if f := c.expect("waits"); f[0] != id {
		c.t.Fatalf("waits %q, want %s", f, id)
	}
}

// isShared reports whether a lock has shared holders.
func (b *fixture) isShared(key string) bool {
	b.t.Helper()
	value, _ := b.call("GET", key).(string)
	return strings.HasPrefix(value, "dibs:shared ")
}

// wantExpiry checks that all remaining keys but the fence high-water marks expire: locks within a
// lease, queues within a minute, metadata and holders within the sum of both.
func (b *fixture) wantExpiry(lease time.Duration) {
	b.t.Helper()
	count := make(map[string]int)
	for _, left := range b.remainingKeys() {
		kind, bound := "locks", lease
		switch {
		case strings.HasSuffix(left, ":dibs:queue"):
			kind, bound = "queues", time.Minute
		case strings.HasSuffix(left, ":dibs:meta"):
			kind, bound = "meta", time.Minute+lease
		case strings.HasSuffix(left, ":dibs:holders"):
			kind, bound = "holders", time.Minute+lease
		}
		count[kind]++
		ms, _ := b.call("PTTL", left).(int64)
		life := time.Duration(ms) * time.Millisecond
		if life > bound || ms == -1 {
			b.t.Errorf("%q expires in %v (negative: never), want at most %v", left, life, bound)
		}
	}
	b.t.Logf("FIGURE keys that expire: %v (locks within %v, queues within 1m, metadata and holders within both)", count, lease)
}
