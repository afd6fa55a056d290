package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/dibslock/dibs/storetest"
)

// proxied returns a store behind a proxy at an address.
func proxied(t testing.TB, addr string, options ...redisstore.Option) *redisstore.Store {
	conn := redistest.Dial(addr)
	t.Cleanup(conn.Close)
	return redisstore.New(conn, append(options, redisstore.Proxy())...)
}

// A bypassed store is behind a proxy, but receives notifications and lists names from its only
// server.
type bypassed struct {
	*driver.Full
	server driver.Store
}

func (b bypassed) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return b.server.Watch(ctx, client, busy, on)
}

func (b bypassed) List(ctx context.Context, pattern string) ([]string, error) {
	return driver.Complete(b.server).List(ctx, pattern)
}

// The scripts for servers behind a proxy should keep the contract. All names have the same hash
// tag.
func TestStoreBehindProxy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	router := redistest.NewRouter(t, redistest.ByTag, server)
	var stores atomic.Int32
	t.Run("contract", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			prefix := redisstore.Prefix(fmt.Sprintf("{%d}:", stores.Add(1)))
			return bypassed{driver.Complete(proxied(t, router.Addr(), prefix)), open(t, server, prefix)}
		})
	})
	for _, key := range keysOf(t, server) {
		if ttl := server.MustCmd(t, "PTTL", key); ttl == int64(-1) {
			t.Errorf("%q never expires", key)
		}
	}
}

// Clients behind a proxy are consistent in real time, whichever server stores their names.
func TestHistoryBehindProxy(t *testing.T) {
	t.Parallel()
	drill.Proxies(t, func(t *testing.T, addr string) {
		for seed := range uint64(2) {
			history.Run(t, proxied(t, addr), history.Plan{Seed: seed, Ops: 1000, PassesOver: true, Prefix: fmt.Sprintf("{%d}", seed)})
		}
	})
}

// Locks behind a proxy exclude each other by name only. It runs for ten minutes with
// DIBS_LONG.
func TestExclusionBehindProxy(t *testing.T) {
	t.Parallel()
	drill.Opener{Proxied: func(t testing.TB, addr string) *redisstore.Store { return proxied(t, addr) }}.Proxy(t)
}

// Whatever many clients request at once, no script uses keys with different hash tags.
func TestScriptsBehindProxyHaveOneTag(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []redisstore.Option
		mixes   bool
	}{"with the option": {[]redisstore.Option{redisstore.Proxy()}, false}, "without it": {nil, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			router := redistest.NewRouter(t, redistest.ByTag, redistest.Start(t))
			conn := redistest.Dial(router.Addr())
			t.Cleanup(conn.Close)
			requestMuch(t, redisstore.New(conn, c.options...))
			if n := router.Mixed(); n > 0 != c.mixes {
				t.Errorf("%d scripts had keys of different tags", n)
			}
		})
	}
}

// requestMuch makes concurrent requests for many names, of all kinds that can be joined: it
// acquires, extends, inspects and releases them.
func requestMuch(t *testing.T, s *redisstore.Store) {
	const names = 300
	var running sync.WaitGroup
	leases := make([]driver.ExtendRequest, names)
	for i := range leases {
		leases[i] = driver.ExtendRequest{
			Name: fmt.Sprintf("n%d", i), Token: fmt.Sprintf("host:1:AAAAAAAAAAAAAAAA:%d", i), Client: "host:1:AAAAAAAAAAAAAAAA",
			TTL: time.Minute, Weight: 1, Limit: 1 + i%2,
		}
	}
	atOnce := func(do func(h driver.ExtendRequest) error) {
		for _, h := range leases {
			running.Go(func() {
				if err := do(h); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	until, _ := ctx.Deadline()
	atOnce(func(h driver.ExtendRequest) error {
		_, err := s.Acquire(ctx, driver.AcquireRequest{Name: h.Name, Token: h.Token, Client: h.Client, TTL: h.TTL, Weight: h.Weight, Limit: h.Limit, Until: until})
		return err
	})
	if err := errors.Join(s.Extend(ctx, leases)...); err != nil {
		t.Error(err)
	}
	all := make([]string, names)
	for i, h := range leases {
		all[i] = h.Name
	}
	if states, err := s.InspectAll(ctx, all); err != nil || len(states) != names || len(states[0].Holders) != 1 {
		t.Errorf("%d states, %v", len(states), err)
	}
	atOnce(func(h driver.ExtendRequest) error {
		held, err := s.Release(ctx, driver.ReleaseRequest{Name: h.Name, Token: h.Token, Until: until})
		if err == nil && !held {
			err = fmt.Errorf("%q is not held", h.Name)
		}
		return err
	})
}

// An impatientProxy executes some requests and answers with an error, as twemproxy does whose
// server is slow.
type impatientProxy struct {
	redisconn.Conn
	answer  redisconn.ServerError
	refuses atomic.Int32 // requests with this answer
}

func (c *impatientProxy) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.Conn.Do(ctx, until, cmds, replies)
	for i := range replies {
		if cmds[i].Script != nil && replies[i].Err == nil && c.refuses.Add(-1) >= 0 {
			replies[i] = redisconn.Reply{Err: c.answer}
		}
	}
}

// A proxy's error should leave the outcome unknown, and be retried; a Redis error should not.
func TestErrorsOfAProxy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for answer, refused := range map[redisconn.ServerError]bool{
		"ERR Connection timed out": false, "ERR Connection refused": false, "upstream failure": false,
		"ERR handle response, backend conn failure, EOF":  false,
		"NOPERM this user has no permissions":             true,
		"ERR OOM command not allowed":                     true,
		"ERR Error running script (call to f_1): @user_x": true,
	} {
		conn := redistest.Dial(server.Addr())
		t.Cleanup(conn.Close)
		proxy := &impatientProxy{Conn: conn, answer: answer}
		s := redisstore.New(proxy, redisstore.Proxy())
		request := driver.AcquireRequest{Name: string(answer), Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
		proxy.refuses.Store(1)
		_, err := s.Acquire(t.Context(), request)
		var unavailable *driver.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Refused != refused {
			t.Errorf("%q: %+v", answer, err)
		}
		if refused {
			continue
		}
		locks := dibs.New(s, dibs.Timeout(generous))
		defer locks.Close()
		for i := range 3 {
			name := fmt.Sprintf("%s-%d", answer, i)
			proxy.refuses.Store(1)
			lease, err := locks.Mutex(name).Lock(t.Context())
			if err != nil {
				t.Errorf("%q: %v", answer, err)
				continue
			}
			proxy.refuses.Store(1)
			if err := lease.Unlock(); err != nil {
				t.Logf("%q: %v", answer, err) // the release was executed, and its outcome is not known
			}
			if held := server.MustCmd(t, "EXISTS", "lock:"+name); held != int64(0) {
				t.Errorf("%q: the name is still held", answer)
			}
		}
	}
}

// A multi-lock must reject names that a proxy can route to different servers.
func TestMultiLockBehindProxyNeedsOneTag(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := dibs.New(proxied(t, redistest.NewRouter(t, redistest.ByTag, server).Addr()))
	defer locks.Close()
	for _, names := range [][]string{{"a", "b"}, {"{a}x", "{b}x"}, {"a", "{a}"}, {"{a}1", "{a}2", "{a"}} {
		_, err := locks.All(names).TryLock(t.Context())
		if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "hash tag") {
			t.Errorf("%q: %v", names, err)
		}
	}
	lease, err := locks.All([]string{"{a}1", "{a}2", "x{a}"}).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
}

// Requests that need notifications, a key list or a single server are refused with a reason.
func TestProxyRefusals(t *testing.T) {
	t.Parallel()
	request := driver.AcquireRequest{Name: "a", Token: "t", Client: "c", TTL: time.Second, Weight: 1, Limit: 1}
	for name, other := range map[string]redisstore.Option{
		"HiddenCluster": redisstore.HiddenCluster(), "WithReplicas": redisstore.WithReplicas(1, time.Second), "Redisson": redisstore.Redisson(),
	} {
		s := redisstore.New(redistest.Dial("127.0.0.1:1"), other, redisstore.Proxy(), redisstore.Prefix("lock:"))
		if _, err := s.Acquire(t.Context(), request); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "Proxy") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Examine(t.Context()); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: an examination: %v", name, err)
		}
	}
	s := redisstore.New(redistest.Dial("127.0.0.1:1"), redisstore.Proxy())
	if err := s.CanVote(); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a vote: %v", err)
	}
	if _, err := s.List(t.Context(), "*"); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "each server behind it") {
		t.Errorf("a list: %v", err)
	}
	if err := s.Watch(t.Context(), "c", nil, func(e driver.Event) { t.Errorf("event %v", e) }); err == nil || t.Context().Err() != nil {
		t.Errorf("watch returned %v", err)
	}
}

// Behind a proxy InspectAll should read many names' states, whichever server each is on.
func TestInspectAllBehindProxy(t *testing.T) {
	t.Parallel()
	drill.Proxies(t, func(t *testing.T, addr string) {
		s := proxied(t, addr)
		locks := dibs.New(s)
		defer locks.Close()
		var names []string
		for i := range 30 {
			name := fmt.Sprintf("n%d", i)
			names = append(names, name, name+"-free")
			var err error
			if i%2 == 0 {
				_, err = locks.Mutex(name).TryLock(t.Context())
			} else {
				_, err = locks.Semaphore(name, 2).Permits(1).TryLock(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		states, err := s.InspectAll(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		for i, state := range states {
			if want := 1 - i%2; state.Name != names[i] || len(state.Holders) != want {
				t.Errorf("%q: %+v, want %d holders", names[i], state, want)
			}
		}
	})
}
