package redigostore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redigostore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

// pools are the two pool kinds: with the direct path to the server, and without.
var pools = []struct {
	name string
	open func(t testing.TB, addr string) *redis.Pool
}{
	{"contexts", func(t testing.TB, addr string) *redis.Pool { return pool(t, addr) }},
	{"plain", plainPool},
}

func TestClosedPool(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	p, w := pool(t, addr), pool(t, addr)
	w.Wait, w.MaxActive = true, 2
	for name, c := range map[string]struct {
		pool  *redis.Pool
		store *redisstore.Store
	}{
		"pool": {p, redigostore.New(p)}, "waits": {w, redigostore.New(w)},
	} {
		t.Run(name, func(t *testing.T) {
			locks := open(t, c.store)
			l := drill.Lock(t, locks, name) // remains locked
			c.pool.Close()
			machine := drill.WatchMachine(t.Context(), addr)
			machine.Measure(t, "closed pool, "+name, 500*time.Millisecond, func() time.Duration {
				start := time.Now()
				_, err := locks.Mutex("other").Lock(t.Context())
				wantRefused(t, err, redisconn.ErrClosed)
				return time.Since(start)
			})
			start := time.Now()
			wantRefused(t, l.Unlock(), redisconn.ErrClosed)
			if took, late := time.Since(start), machine.Late(); took > 500*time.Millisecond+late {
				t.Errorf("Unlock took %v (control %v)", took, late)
			}
		})
	}
}

// obtain is drill.Obtain for a mutex.
func obtain(t *testing.T, c *dibs.Client, name string) *dibs.Lease {
	t.Helper()
	return drill.Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return c.Mutex(name).Lock(ctx) })
}

func wantRefused(t *testing.T, err, cause error) {
	t.Helper()
	var u *driver.UnavailableError
	if !errors.As(err, &u) || !u.Refused || !errors.Is(err, cause) {
		t.Errorf("have %v, want Refused with the cause %v", err, cause)
	}
}

// While the server does not answer, a call ends at its deadline.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, kind := range pools {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, server.Addr())
			locks := open(t, redigostore.New(kind.open(t, proxy.Addr())), dibs.TTL(time.Minute))
			machine := drill.WatchMachine(t.Context(), server.Addr())
			held := drill.Lock(t, locks, kind.name)
			proxy.Freeze()
			for i := range 8 {
				machine.Measure(t, "frozen server: a call with 300ms", 450*time.Millisecond, func() time.Duration {
					start := time.Now()
					_, err := locks.Mutex(fmt.Sprint(kind.name, i)).Lock(drill.Within(t, 300*time.Millisecond))
					took := time.Since(start)
					if !errors.Is(err, dibs.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("have %v, want unavailable: deadline exceeded", err)
					}
					return took
				})
			}
			proxy.Heal()
			drill.Unlock(t, obtain(t, locks, kind.name+" again"))
			if err := held.Unlock(); err != nil && !errors.Is(err, dibs.ErrUnavailable) {
				t.Error(err)
			}
			drill.Unlock(t, obtain(t, locks, kind.name)) // already free, long before its TTL of a minute ends
		})
	}
}

// When connections break under load, calls at most return ErrUnavailable.
func TestResetUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, kind := range pools {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, server.Addr())
			locks := open(t, redigostore.New(kind.open(t, proxy.Addr())))
			done := make(chan struct{})
			var workers sync.WaitGroup
			var entered atomic.Int64
			for i := range 8 {
				workers.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						l, err := locks.Mutex(fmt.Sprint(kind.name, i%4)).Lock(drill.Within(t, drill.Generous))
						if err == nil {
							entered.Add(1)
							err = l.Unlock()
						}
						if err != nil && !errors.Is(err, dibs.ErrUnavailable) {
							t.Errorf("under load: %v", err)
						}
					}
				})
			}
			for range 20 {
				before := entered.Load()
				drill.Eventually(t, "locking continues", func() bool { return entered.Load() > before+10 })
				proxy.Reset()
			}
			close(done)
			workers.Wait()
			for i := range 4 { // a release without a reply is retried soon
				drill.Unlock(t, obtain(t, locks, fmt.Sprint(kind.name, i)))
			}
		})
	}
}

func TestWatchOverFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, kind := range pools {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, server.Addr())
			events := drill.Watch(t, redigostore.New(kind.open(t, proxy.Addr())))
			drill.WantEvent(t, events, driver.EventConnected, drill.Generous)
			proxy.Reset()
			drill.WantEvent(t, events, driver.EventDisconnected, drill.Generous)
			drill.WantEvent(t, events, driver.EventConnected, drill.Generous)
			proxy.Freeze()
			drill.WantEvent(t, events, driver.EventDisconnected, drill.Generous)
			proxy.Heal()
			drill.WantEvent(t, events, driver.EventConnected, drill.Generous)
			select {
			case e := <-events:
				t.Errorf("event %+v on an idle connection", e)
			case <-time.After(3 * time.Second): // longer than the interval between pings
			}
			proxy.Freeze() // so that Watch ends on an unresponsive connection
		})
	}
}

// A hanging dial should be reported as a disconnect, and not delay Watch's end.
func TestWatchEndsWhileDialling(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang)
	p := &redis.Pool{Dial: func() (redis.Conn, error) {
		<-hang
		return nil, errors.New("late")
	}}
	events := drill.Watch(t, redigostore.New(p))
	drill.WantEvent(t, events, driver.EventDisconnected, drill.Generous)
}

func TestPoolWithoutDial(t *testing.T) {
	t.Parallel()
	s := redigostore.New(&redis.Pool{})
	drill.WantEvent(t, drill.Watch(t, s), driver.EventDisconnected, drill.Generous)
	if _, err := open(t, s).Mutex(job).TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
		t.Errorf("have %v, want unavailable", err)
	}
}

// handOver hands a lock from a client to another client's waiter, and returns the event for the
// waiter's acquisition.
func handOver(t *testing.T, holder, waiter *dibs.Client) dibs.AcquireEnd {
	t.Helper()
	l := drill.Lock(t, holder, job)
	waits := make(chan struct{})
	acquired := make(chan dibs.AcquireEnd, 1)
	entered := make(chan *dibs.Lease, 1)
	go func() {
		defer close(entered)
		l, err := waiter.Mutex(job).Lock(drill.Within(t, drill.Generous), dibs.Observe(dibs.Hooks{
			Queued:     func(context.Context, dibs.Queued) { close(waits) },
			AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) { acquired <- a },
		}))
		if err != nil {
			t.Errorf("waiter: %v", err)
			return
		}
		entered <- l
	}()
	select {
	case <-waits:
	case <-entered:
		t.Fatal("the call does not wait")
	}
	drill.Unlock(t, l)
	if l = <-entered; l == nil {
		t.FailNow()
	}
	drill.Unlock(t, l)
	return <-acquired
}

func TestHandOffNotifies(t *testing.T) {
	t.Parallel()
	s := redigostore.New(pool(t, redistest.Start(t).Addr()))
	holder, waiter := open(t, s), open(t, s)
	notified := 0
	for range 20 { // a client subscribes only after its first call
		if handOver(t, holder, waiter).Notified {
			notified++
		}
	}
	if notified < 10 {
		t.Errorf("%d of 20 hand-offs notified the waiter, want at least 10", notified)
	}
}

// A user without permission for channels can lock: its waiters poll.
func TestNoChannels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, "ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all")
	s := redigostore.New(pool(t, server.Addr(), redis.DialUsername("app"), redis.DialPassword("secret")))
	var degraded atomic.Int64
	var cause atomic.Pointer[error]
	hooks := dibs.Observe(dibs.Hooks{Degraded: func(_ context.Context, d dibs.Degraded) { degraded.Add(1); cause.Store(&d.Err) }})
	holder, waiter := open(t, s), open(t, s, hooks)
	for range 5 {
		handOver(t, holder, waiter)
	}
	drill.Eventually(t, "Degraded is called", func() bool { return degraded.Load() > 0 })
	if n := degraded.Load(); n != 1 || !strings.Contains((*cause.Load()).Error(), "NOPERM") {
		t.Errorf("Degraded was called %d times, with %v: want once, with NOPERM", n, *cause.Load())
	}
}

func TestScriptFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, kind := range pools {
		locks := open(t, redigostore.New(kind.open(t, server.Addr())))
		for range 5 {
			l := drill.Lock(t, locks, job)
			server.MustCmd(t, "SCRIPT", "FLUSH")
			drill.Unlock(t, l)
			server.MustCmd(t, "SCRIPT", "FLUSH")
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s := redigostore.New(pool(t, redistest.Start(t).Addr()))
	locks := open(t, s)
	for _, n := range []string{"a1", "a2", "b"} {
		defer drill.Lock(t, locks, n).Unlock()
	}
	have, err := s.List(drill.Within(t, drill.Generous), "a*")
	slices.Sort(have)
	if err != nil || !slices.Equal(have, []string{"a1", "a2"}) {
		t.Errorf("have %q, %v", have, err)
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "secret")
	locks := open(t, redigostore.New(pool(t, server.Addr(), redis.DialPassword("secret"))))
	drill.Unlock(t, drill.Lock(t, locks, job))
	for word, options := range map[string][]redis.DialOption{"NOAUTH": nil, "WRONGPASS": {redis.DialPassword("wrong")}} {
		_, err := open(t, redigostore.New(pool(t, server.Addr(), options...))).Mutex(job).Lock(t.Context())
		var refusal redisconn.ServerError
		if !errors.As(err, &refusal) || !strings.HasPrefix(string(refusal), word) {
			t.Errorf("have %v, want %s", err, word)
		}
		wantRefused(t, err, refusal)
	}
}

// Fifty callers with different names should succeed with two connections.
func TestFullPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, wait := range []bool{true, false} {
		for _, kind := range pools {
			t.Run(fmt.Sprintf("%s wait %v", kind.name, wait), func(t *testing.T) {
				p := kind.open(t, server.Addr())
				p.MaxActive, p.Wait = 2, wait
				locks := open(t, redigostore.New(p))
				var callers sync.WaitGroup
				for i := range 50 {
					callers.Go(func() {
						for range 5 {
							l, err := locks.Mutex(fmt.Sprint(i)).TryLock(drill.Within(t, drill.Generous))
							if err == nil {
								err = l.Unlock()
							}
							if err != nil {
								t.Errorf("%d: %v", i, err)
							}
						}
					})
				}
				callers.Wait()
			})
		}
	}
}

// Without replicas nothing is granted, and ErrBusy is returned without waiting for
// replicas.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	server := redistest.Start(t)
	s := redigostore.New(pool(t, server.Addr()), redisstore.WithReplicas(1, timeout))
	locks := open(t, s, dibs.Timeout(10*time.Second))
	for range 2 { // the second time the store expects too few
		_, err := locks.Mutex(job).TryLock(drill.Within(t, drill.Generous))
		var few *redisstore.ReplicasError
		if !errors.Is(err, dibs.ErrUnavailable) || !errors.As(err, &few) || few.Have != 0 || few.Want != 1 {
			t.Fatalf("have %v, want 0 of 1 replicas", err)
		}
		if held := server.MustCmd(t, "GET", key); held != nil {
			t.Fatalf("held by %v", held)
		}
	}
	server.MustCmd(t, "SET", key, "theirs", "PX", "60000")
	drill.WatchMachine(t.Context(), server.Addr()).Measure(t, "too few replicas: busy after", timeout/2, func() time.Duration {
		start := time.Now()
		if _, err := locks.Mutex(job).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("have %v, want busy", err)
		}
		return time.Since(start)
	})
}

// When a pool's connections lead to a former master, the store should open new connections.
func TestDemotion(t *testing.T) {
	t.Parallel()
	old, master := redistest.Start(t), redistest.Start(t)
	var addr atomic.Pointer[string]
	to := func(s *redistest.Server) { a := s.Addr(); addr.Store(&a) }
	to(old)
	p := &redis.Pool{MaxIdle: 3, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", *addr.Load(), timeouts...)
	}}
	t.Cleanup(func() { p.Close() })
	locks := open(t, redigostore.New(p))
	drill.Unlock(t, drill.Lock(t, locks, job))
	old.MustCmd(t, "REPLICAOF", "127.0.0.1", "1")
	to(master)
	drill.Eventually(t, "the new master is found", func() bool {
		l, err := locks.Mutex(job).TryLock(drill.Within(t, drill.Generous))
		return err == nil && l.Unlock() == nil
	})
}

// Not parallel, because it counts goroutines.
func TestNoGoroutineIsLeft(t *testing.T) {
	server := redistest.Start(t)
	before := runtime.NumGoroutine()
	proxy, err := redistest.StartProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	p := pool(t, proxy.Addr())
	locks := dibs.New(redigostore.New(p))
	drill.Unlock(t, drill.Lock(t, locks, job))
	handOver(t, locks, locks)
	proxy.Freeze()
	_, _ = locks.Mutex(job).Lock(drill.Within(t, 100*time.Millisecond))
	locks.Close()
	p.Close()
	proxy.Close()
	for end := time.Now().Add(drill.Generous); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) { // polls
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}
