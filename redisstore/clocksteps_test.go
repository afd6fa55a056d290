package redisstore_test

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

//go:embed testdata/shift_expiry.lua
var shiftExpiry string

//go:embed testdata/stepped_time.lua
var steppedTime string

var readsTime = regexp.MustCompile(`redis\.call\('TIME'\)`)

// A serverClock is a server's clock, for scripts and for key expiry. A test can step it.
type serverClock struct {
	server *redistest.Server

	mu    sync.RWMutex // held for reading while commands are sent
	ahead time.Duration
}

// step moves the clock ahead or back, as an administrator would. A key expires at a fixed time, so
// it lives shorter or longer.
func (c *serverClock) step(t *testing.T, by time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
	c.server.MustCmd(t, "EVAL", shiftExpiry, "0", strconv.FormatInt(by.Milliseconds(), 10))
}

// script returns a script with this clock.
func (c *serverClock) script(s *redisconn.Script) *redisconn.Script {
	if c.ahead == 0 {
		return s
	}
	text := strings.ReplaceAll(steppedTime, "AHEAD", strconv.FormatInt(c.ahead.Microseconds(), 10)) +
		readsTime.ReplaceAllString(s.Text, "stepped_time()")
	sum := sha1.Sum([]byte(text))
	return &redisconn.Script{Text: text, Hash: hex.EncodeToString(sum[:])}
}

// A steppedConn is a connection to a server with that clock.
type steppedConn struct {
	redisconn.Conn
	clock *serverClock
}

func (c steppedConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.clock.mu.RLock()
	defer c.clock.mu.RUnlock()
	own := make([]redisconn.Cmd, len(cmds))
	for i, cmd := range cmds {
		if cmd.Script != nil {
			cmd.Script, cmd.Whole = c.clock.script(cmd.Script), true
		}
		own[i] = cmd
	}
	c.Conn.Do(ctx, until, own, replies)
}

// open returns another store, like another process.
func (c *serverClock) open(t *testing.T, options ...redisstore.Option) *redisstore.Store {
	conn := redistest.Dial(c.server.Addr())
	t.Cleanup(conn.Close)
	return redisstore.New(steppedConn{conn, c}, options...)
}

// In a queueTest several clients, each like its own process, wait for the same name. It records in
// which order they are served.
type queueTest struct {
	t       *testing.T
	clock   *serverClock
	options []redisstore.Option
	waiting sync.WaitGroup

	mu     sync.Mutex
	served []int
	last   time.Time     // when the last waiter was served, or the first could be
	worst  time.Duration // between two waiters
}

func (q *queueTest) client() *dibs.Client {
	locks := dibs.New(q.clock.open(q.t, q.options...))
	q.t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// wait lets another client wait, and returns when its entry is in the queue, or it was served.
func (q *queueTest) wait(i int, options ...dibs.Option) {
	q.t.Helper()
	queued := make(chan struct{})
	hooks := dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(queued) }})
	locks, done := q.client(), make(chan struct{})
	q.waiting.Go(func() {
		defer close(done)
		err := locks.Mutex("n").Do(q.t.Context(), func(context.Context) error {
			q.mu.Lock()
			defer q.mu.Unlock()
			now := time.Now()
			q.served, q.worst, q.last = append(q.served, i), max(q.worst, now.Sub(q.last)), now
			return nil
		}, append(options, hooks)...)
		if err != nil {
			q.t.Errorf("waiter %d: %v", i, err)
		}
	})
	select {
	case <-queued:
	case <-done:
	case <-time.After(generous):
		q.t.Fatalf("waiter %d is not queued", i)
	}
}

// wantOrder waits until all are served.
func (q *queueTest) wantOrder(within time.Duration) {
	q.t.Helper()
	q.waiting.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, served := range q.served {
		if served != i {
			q.t.Errorf("served in the order %v", q.served)
			break
		}
	}
	if q.worst > within {
		q.t.Errorf("a waiter was served after %v, want %v at most", q.worst, within)
	}
	q.t.Logf("FIGURE longest time between two entries: %v", q.worst)
}

// serverKinds are the kinds of server, and the options of their stores.
var serverKinds = map[string][]redisstore.Option{"one server": nil, "cluster": {redisstore.HiddenCluster()}}

// Steps in the server's clock should not change the order of waiters, whether they joined before or
// after. The next waiter should be served within 5 s.
func TestClockStepsKeepOrder(t *testing.T) {
	t.Parallel()
	for kind, options := range serverKinds {
		for _, step := range []time.Duration{300 * time.Millisecond, 6 * time.Second, 40 * time.Second, time.Hour} {
			for _, by := range []time.Duration{-step, step} {
				t.Run(fmt.Sprint(kind, " ", by), func(t *testing.T) {
					t.Parallel()
					q := &queueTest{t: t, clock: &serverClock{server: startKind(t, kind)}, options: options}
					holder, err := q.client().Mutex("n").Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for i := range 4 {
						q.wait(i)
					}
					q.last = time.Now()
					q.clock.step(t, by)
					for queueLength(t, q.clock.server, "lock:n") == 0 { // the whole queue may have expired
						time.Sleep(time.Millisecond)
					}
					for i := range 3 {
						q.wait(4 + i)
					}
					_ = holder.Unlock() // the lease may have expired
					q.wantOrder(5 * time.Second)
				})
			}
		}
	}
}

// A multi-lock whose process is dead heads the queue when the clock is set back. From then on its
// entry and its last request time are far in the future. It delays other waiters by 5 s at most,
// and does not change their order.
func TestClockStepBackOverADeadMultiLock(t *testing.T) {
	t.Parallel()
	for kind, options := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			q := &queueTest{t: t, clock: &serverClock{server: startKind(t, kind)}, options: options}
			holder, err := q.client().Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			dead := driver.AcquireRequest{
				Name: "n", With: []string{"{lock:n}"}, Token: "dead", Client: "dead", TTL: time.Minute,
				Weight: 1, Limit: 1, Queue: true, Until: time.Now().Add(generous),
			}
			if reply, err := q.clock.open(t, options...).Acquire(t.Context(), dead); err != nil || reply.Position != 1 {
				t.Fatalf("position %d, error %v", reply.Position, err)
			}
			for i := range 3 {
				q.wait(i)
			}
			q.clock.step(t, -time.Hour)
			q.last = time.Now()
			if err := holder.Unlock(); err != nil {
				t.Error(err)
			}
			q.wait(3)
			q.wantOrder(5 * time.Second)
		})
	}
}

func startKind(t *testing.T, kind string) *redistest.Server {
	if kind == "cluster" {
		return redistest.StartClusterNode(t)
	}
	return redistest.Start(t)
}
