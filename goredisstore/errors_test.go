package goredisstore_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/go-redis/v9"
)

// newUnconnectedClient returns a client without any connection yet.
func newUnconnectedClient(t *testing.T, o *redis.Options, options ...dibs.Option) *dibs.Client {
	t.Helper()
	c := dibs.New(goredisstore.New(dial(t, o)), append([]dibs.Option{dibs.TTL(ttl)}, options...)...)
	t.Cleanup(func() { c.Close() })
	return c
}

// A server's refusal should be returned at once, with the server's text. A replica may be about to
// become the master, so its refusal should be returned only after the operation timeout.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, refusal := range []struct {
		name    string
		args    []string
		prepare [][]string
		kind    error
		word    string // in the server's reply
		text    string // in the error; empty: the same
		mayPass bool
	}{
		{"no password", []string{"--requirepass", "secret"}, nil, dibs.ErrUnavailable, "NOAUTH", "", false},
		{"read-only replica", []string{"--replicaof", "127.0.0.1", "1"}, nil, dibs.ErrUnavailable, "READONLY", "", true},
		{"out of memory", nil, [][]string{
			{"SET", "ballast", strings.Repeat("x", 1<<20)}, {"CONFIG", "SET", "maxmemory-policy", "noeviction"}, {"CONFIG", "SET", "maxmemory", "1mb"},
		}, dibs.ErrUnavailable, "OOM", "", false},
		{"list", nil, [][]string{{"RPUSH", key, "a"}}, dibs.ErrWrongType, "WRONGTYPE", "holds a list", false},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t, refusal.args...)
			for _, cmd := range refusal.prepare {
				b.call(cmd...)
			}
			const timeout, attempts = time.Second, 3
			locks := newUnconnectedClient(t, &redis.Options{Addr: b.server.Addr()}, dibs.Timeout(timeout))
			for _, try := range []struct {
				name     string
				attempts int
				lock     func(*dibs.Mutex) (*dibs.Lease, error)
			}{
				{"Lock", 1, func(m *dibs.Mutex) (*dibs.Lease, error) { return m.Lock(t.Context()) }},
				{"TryLock", 1, func(m *dibs.Mutex) (*dibs.Lease, error) { return m.TryLock(t.Context()) }},
				{"Attempts", attempts, func(m *dibs.Mutex) (*dibs.Lease, error) {
					return m.Lock(t.Context(), dibs.Attempts(attempts, time.Second))
				}},
			} {
				limit := 100 * time.Millisecond
				if refusal.mayPass {
					limit = time.Duration(try.attempts)*(timeout+limit) + time.Duration(try.attempts-1)*time.Second
				}
				var err error
				b.Measure(t, refusal.name+": "+try.name, limit, func() time.Duration {
					start := time.Now()
					_, err = try.lock(locks.Mutex(job))
					return time.Since(start)
				})
				b.wantErr(err, refusal.kind)
				var server redisconn.ServerError
				if !errors.As(err, &server) || !strings.Contains(string(server), refusal.word) || !strings.Contains(err.Error(), cmp.Or(refusal.text, refusal.word)) {
					t.Errorf("%q: want it to contain the server's %s", err, cmp.Or(refusal.text, refusal.word))
				}
				var u *driver.UnavailableError
				if errors.Is(refusal.kind, dibs.ErrUnavailable) && (!errors.As(err, &u) || u.Refused == refusal.mayPass) {
					t.Errorf("%#v: want Refused, unless the refusal may pass", err)
				}
			}
		})
	}
}

func TestClosedRedisClient(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	rdb := dial(t, &redis.Options{Addr: b.server.Addr()})
	locks := dibs.New(goredisstore.New(rdb), dibs.TTL(ttl))
	defer locks.Close()
	l := b.lock(locks, job)
	rdb.Close()
	b.begin()
	start := time.Now()
	_, err := locks.Mutex("other").Lock(t.Context())
	b.within("closed go-redis client: Lock", time.Since(start), 100*time.Millisecond)
	b.wantErr(err, dibs.ErrUnavailable)
	b.wantErr(err, redis.ErrClosed)
	b.wantErr(err, redisconn.ErrClosed)
	if !strings.Contains(err.Error(), "closed") {
		t.Errorf("%q: want it to contain the cause", err)
	}
	start = time.Now()
	err = l.Unlock()
	b.within("closed go-redis client: Unlock", time.Since(start), 100*time.Millisecond)
	b.wantErr(err, dibs.ErrUnavailable)
	b.wantErr(err, redis.ErrClosed)
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks, rival := b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
	l := b.lock(locks, job)
	taken := b.lock(rival, "taken")
	waiting := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := locks.Mutex("taken").Lock(t.Context(), dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(waiting) }}))
		ended <- err
	}()
	<-waiting
	b.begin()
	start := time.Now()
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	b.wantErr(<-ended, dibs.ErrClosed)
	b.within("Close with a lease and a waiter", time.Since(start), time.Second)
	b.wantErr(l.Err(), dibs.ErrLost)
	_, err := locks.Mutex(job).Lock(t.Context())
	b.wantErr(err, dibs.ErrClosed)
	b.unlock(taken)
	b.wantNoKeys()
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	machine := watchMachine(t.Context(), listener.Addr().String())
	locks := newUnconnectedClient(t, &redis.Options{Addr: listener.Addr().String()})
	start := time.Now()
	_, err = locks.Mutex(job).Lock(t.Context())
	within(t, "nothing listens: Lock", time.Since(start), 1050*time.Millisecond, machine.late())
	if !errors.Is(err, dibs.ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v, want unavailable: connection refused", err)
	}
}

// A silent server does not delay a caller beyond its time limit.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	for _, mute := range []struct {
		name string
		open func(b *fixture) string // returns the address
	}{
		{"frozen from the start", func(b *fixture) string {
			p := b.proxy()
			p.Freeze()
			return p.Addr()
		}},
		{"stopped process", func(b *fixture) string {
			if err := b.server.Pause(); err != nil {
				b.t.Fatal(err)
			}
			b.t.Cleanup(func() { _ = b.server.Resume() })
			return b.server.Addr()
		}},
	} {
		t.Run(mute.name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			b.control = watchMachine(t.Context(), "127.0.0.1:1") // timers only
			addr := mute.open(b)
			for _, call := range []struct {
				name  string
				ctx   context.Context
				limit time.Duration
				cause error
			}{
				{"ctx 300ms", deadline(t, generous), 400 * time.Millisecond, context.DeadlineExceeded},
				{"no deadline", t.Context(), 1100 * time.Millisecond, nil},
			} {
				for _, way := range []struct {
					name string
					lock func(*dibs.Mutex, context.Context) (*dibs.Lease, error)
				}{
					{"Lock", func(m *dibs.Mutex, ctx context.Context) (*dibs.Lease, error) { return m.Lock(ctx) }},
					{"TryLock", func(m *dibs.Mutex, ctx context.Context) (*dibs.Lease, error) { return m.TryLock(ctx) }},
				} {
					locks := newUnconnectedClient(t, &redis.Options{Addr: addr})
					ctx := call.ctx
					if call.cause != nil {
						ctx = deadline(t, 300*time.Millisecond)
					}
					b.begin()
					start := time.Now()
					_, err := way.lock(locks.Mutex(job), ctx)
					b.within(mute.name+", "+call.name+": "+way.name, time.Since(start), call.limit)
					b.wantErr(err, dibs.ErrUnavailable)
					if call.cause != nil {
						b.wantErr(err, call.cause)
					}
				}
			}
		})
	}
}

// Not parallel, because it counts goroutines.
func TestNoGoroutineIsLeft(t *testing.T) {
	server := redistest.Start(t)
	before := runtime.NumGoroutine()
	useAndClose(t, server)
	var after int
	for end := time.Now().Add(generous); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // polls
		if after = runtime.NumGoroutine(); after <= before {
			t.Logf("FIGURE goroutines: %d before, %d after", before, after)
			return
		}
	}
	stacks := make([]byte, 1<<20)
	t.Fatalf("%d goroutines before, %d after:\n%s", before, after, stacks[:runtime.Stack(stacks, true)])
}

// useAndClose uses a client, and closes it while it holds a lock, waits and is cut off.
func useAndClose(t *testing.T, server *redistest.Server) {
	proxy, err := redistest.StartProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb), dibs.TTL(ttl))
	for range 10 {
		if err := locks.Mutex(job).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := locks.Mutex(job).Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		_, err := locks.Mutex(job).Lock(context.Background(), dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(waiting) }}))
		ended <- err
	}()
	<-waiting
	proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := locks.Mutex("cut off").Lock(ctx); !errors.Is(err, dibs.ErrUnavailable) {
		t.Errorf("cut off: %v", err)
	}
	start := time.Now()
	err = locks.Close()
	t.Logf("FIGURE Close while cut off: %v, returns %v", round(time.Since(start)), err)
	if !errors.Is(err, dibs.ErrUnavailable) {
		t.Errorf("close while cut off: %v", err)
	}
	if err := <-ended; !errors.Is(err, dibs.ErrClosed) {
		t.Errorf("the waiter: %v", err)
	}
}

// The error about a foreign lock without expiry should say so.
func TestForeignWithoutExpiry(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks := b.newClient(b.server.Addr())
	b.call("SET", key, "theirs")
	for _, options := range [][]dibs.Option{{dibs.Wait(0)}, {dibs.Wait(300 * time.Millisecond)}} {
		_, err := locks.Mutex(job).Lock(t.Context(), options...)
		var busy *dibs.BusyError
		if !errors.As(err, &busy) || !busy.NeverExpires || busy.Holder != "theirs" || !strings.Contains(err.Error(), "never expires") {
			t.Errorf("%v, want busy: held by theirs, never expires", err)
		}
	}
}

// A user without permission for channels can lock: its waiters poll.
func TestNoChannels(t *testing.T) {
	b := setUp(t)
	b.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all")
	app := &redis.Options{Addr: b.server.Addr(), Username: "app", Password: "secret"}
	var degraded atomic.Int64
	var cause atomic.Pointer[error]
	hooks := dibs.Observe(dibs.Hooks{Degraded: func(_ context.Context, d dibs.Degraded) {
		degraded.Add(1)
		cause.Store(&d.Err)
	}})
	locks := newUnconnectedClient(t, app, hooks)
	for _, holder := range []*dibs.Client{newUnconnectedClient(t, app), b.newClient(b.server.Addr())} { // without and with permission to notify
		for range rounds {
			l := b.lock(holder, job)
			waiter := b.enqueue(locks, nil)
			b.begin()
			released := time.Now()
			b.unlock(l)
			e := b.awaitEntry(waiter)
			b.within("no channels: waiter enters after release", e.at.Sub(released), 150*time.Millisecond)
			b.unlock(e.lease)
			b.wantNoKeys()
		}
	}
	if n := degraded.Load(); n != 1 {
		t.Fatalf("Degraded was called %d times, want once", n)
	}
	if err := *cause.Load(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Degraded has the error %v, want NOPERM", err)
	}
}
