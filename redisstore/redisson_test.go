package redisstore_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

// notInRedissonMode are the conformance suite's cases with readers or permits, which Redisson mode
// rejects.
var notInRedissonMode = []string{
	"limit", "exclusive", "own limit", "shared expiry", "shared owner only", "grant together", "heavy first waiter",
	"heavy first waiter leaves", "reserve shared", "resize", "resize needs a lease", "revoke", "extend shared repeatedly", "inspect shared", "shared clients",
	"all or none", "wanted shared", "wanted by many",
}

func TestStoreInRedissonMode(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		start   func(testing.TB) *redistest.Server
		options []redisstore.Option
	}{
		"one server": {func(t testing.TB) *redistest.Server { return redistest.Start(t) }, []redisstore.Option{redisstore.Redisson()}},
		"cluster":    {func(t testing.TB) *redistest.Server { return redistest.StartClusterNode(t) }, []redisstore.Option{redisstore.HiddenCluster(), redisstore.Redisson()}},
	} {
		t.Run(what, func(t *testing.T) {
			server := test.start(t)
			var stores atomic.Int32
			for _, c := range storetest.Cases() {
				if slices.Contains(notInRedissonMode, c.Name) {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					c.Run(t, driver.Complete(openRedisson(t, server, &stores, test.options)))
				})
			}
		})
	}
}

func openRedisson(t *testing.T, server *redistest.Server, stores *atomic.Int32, options []redisstore.Option) driver.Store {
	prefix := fmt.Sprintf("%d:", stores.Add(1))
	return open(t, server, append(slices.Clip(options), redisstore.Prefix(prefix))...)
}

// Redisson's own form, from its source and a trace of its commands.
const redissonHolder = "7fb2518c-216e-4694-a8c4-fce4a1114ba0:40"

func lockByRedisson(t *testing.T, server *redistest.Server, key string) {
	t.Helper()
	server.MustCmd(t, "HSET", key, redissonHolder, "1")
	server.MustCmd(t, "PEXPIRE", key, "30000")
}

func TestRedissonLockIsBusy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Redisson()))
	lockByRedisson(t, server, "n")
	waiter := p.request("n")
	for range 2 {
		if reply := p.acquire(waiter); reply.Held || reply.Holder != redissonHolder || reply.Remaining < 20*time.Second || reply.Poll <= 0 {
			t.Errorf("%+v, want that Redisson holds", reply)
		}
	}
	if state := p.inspect("n"); len(state.Holders) != 1 || state.Holders[0].Token != redissonHolder || state.Waiting != 1 || state.Foreign == nil || !state.Foreign.Lock {
		t.Errorf("state %+v", state)
	}
	if freed, err := p.release(waiter); freed || err != nil {
		t.Errorf("release of a lock of Redisson: %v, %v", freed, err)
	}
	wantIs(t, "extend", p.extend(waiter)[0], driver.ErrLost)
	if have := server.MustCmd(t, "HGET", "n", redissonHolder); have != "1" {
		t.Errorf("the count of Redisson's holder is %v", have)
	}
}

// A dibs lease looks to Redisson like another process's lock: a hash with a holder that acquired
// it once.
func TestLeaseIsRedissonLock(t *testing.T) {
	t.Parallel()
	for name, channel := range map[string]string{"n": "redisson_lock__channel:{n}", "{a}:n": "redisson_lock__channel:{a}:n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			received := messages(t, server, channel)
			p := newClient(t, open(t, server, redisstore.Redisson()))
			r := p.request(name)
			r.TTL = 30 * time.Second
			value := fmt.Sprintf("%d %s", p.mustAcquire(r), r.Token)
			if have := server.MustCmd(t, "HGETALL", name); !reflect.DeepEqual(have, []any{value, "1", "mode", "dibs"}) {
				t.Errorf("the lock key holds %v", have)
			}
			if ms, _ := server.MustCmd(t, "PTTL", name).(int64); ms < 20_000 || ms > 30_000 {
				t.Errorf("the lock key expires in %d ms", ms)
			}
			p.mustRelease(r, 0)
			if m := receive(t, received); m != "0" {
				t.Errorf("message %q, want 0", m)
			}
		})
	}
}

// Each operation refuses a key with another type, or a hash other than an RLock, and does not
// change it.
func TestRedissonModeRefusesOtherForms(t *testing.T) {
	t.Parallel()
	for what, commands := range map[string][][]string{
		"string, dibs in its own form":  {{"SET", "n", "host:1:c:x", "PX", "60000"}},
		"read-write lock":               {{"HSET", "n", "mode", "read", redissonHolder, "1"}, {"PEXPIRE", "n", "60000"}},
		"read-write lock without holds": {{"HSET", "n", "mode", "write"}, {"PEXPIRE", "n", "60000"}},
		"hash without a TTL":            {{"HSET", "n", "views", "12"}},
		"hash of texts":                 {{"HSET", "n", "name", "Ann"}, {"PEXPIRE", "n", "60000"}},
		"set":                           {{"SADD", "n", "a"}},
		"sorted set":                    {{"ZADD", "n", "99999999999", "a"}},
		"list":                          {{"RPUSH", "n", "a"}},
		"stream":                        {{"XADD", "n", "1-1", "a", "b"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			for _, words := range commands {
				server.MustCmd(t, words...)
			}
			before := server.MustCmd(t, "DUMP", "n")
			p := newClient(t, open(t, server, redisstore.Redisson()))
			wait, try, several := p.request("n"), p.request("n"), p.request("m")
			try.Queue = false
			several.With = []string{"n"}
			ctx := t.Context()
			for verb, run := range map[string]func() error{
				"wait":    func() error { _, err := p.s.Acquire(ctx, wait); return err },
				"try":     func() error { _, err := p.s.Acquire(ctx, try); return err },
				"several": func() error { _, err := p.s.Acquire(ctx, several); return err },
				"release": func() error { _, err := p.release(wait); return err },
				"extend":  func() error { return p.extend(wait)[0] },
				"revoke":  func() error { _, err := p.s.Revoke(ctx, driver.RevokeRequest{Name: "n", Fence: 1}); return err },
				"resize":  func() error { _, err := p.s.Resize(ctx, wait); return err },
				"inspect": func() error { _, err := p.s.Inspect(ctx, "n"); return err },
				"wanted": func() error {
					_, err := p.s.NotifyWanted(ctx, driver.WantedRequest{Name: "n", Token: wait.Token, Client: wait.Client})
					return err
				},
			} {
				wantIs(t, verb, run(), driver.ErrWrongType)
			}
			if after := server.MustCmd(t, "DUMP", "n"); after != before {
				t.Error("the key was changed")
			}
		})
	}
}

func TestRedissonModeHasNoReaders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Redisson())
	p := newClient(t, s)
	r := p.request("n")
	r.Limit = driver.Unlimited
	_, err := p.s.Acquire(t.Context(), r)
	wantIs(t, "reader", err, driver.ErrInvalid)
	wantIs(t, "vote", s.CanVote(), driver.ErrInvalid)
	if keys := keysOf(t, server); len(keys) != 0 {
		t.Errorf("keys %q", keys)
	}
}
