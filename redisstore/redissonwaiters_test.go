package redisstore_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

const (
	redissonChannel = "redisson_lock__channel:{n}"
	fairWaiter      = redissonClient + ":28"
	fairChannel     = redissonChannel + ":" + fairWaiter
)

// waitAsFair makes a Redisson thread wait for an RFairLock on n, until its own time-out. Redisson
// writes the same, and then subscribes to the thread's channel.
func waitAsFair(t *testing.T, server *redistest.Server, thread string, left time.Duration) {
	t.Helper()
	until := strconv.FormatInt(time.Now().Add(left).UnixMilli(), 10)
	server.MustCmd(t, "RPUSH", "redisson_lock_queue:{n}", thread)
	server.MustCmd(t, "ZADD", "redisson_lock_timeout:{n}", until, thread)
}

// endings are the ways in which dibs ends a lease on n.
var endings = map[string]func(*testing.T, *testClient, driver.AcquireRequest){
	"release": func(t *testing.T, p *testClient, held driver.AcquireRequest) { p.mustRelease(held, 0) },
	"cancel": func(t *testing.T, p *testClient, held driver.AcquireRequest) {
		if err := p.s.Cancel(t.Context(), held); err != nil {
			t.Fatal(err)
		}
	},
	"revoke": func(t *testing.T, p *testClient, held driver.AcquireRequest) {
		if done, err := p.s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Token: held.Token}); !done || err != nil {
			t.Fatal(done, err)
		}
	},
	"reserve": func(t *testing.T, p *testClient, held driver.AcquireRequest) {
		rel := driver.ReleaseRequest{Name: "n", Token: held.Token, Reserve: 100 * time.Millisecond, Until: time.Now().Add(generous)}
		if done, err := p.s.Release(t.Context(), rel); !done || err != nil {
			t.Fatal(done, err)
		}
	},
}

// Each way in which dibs ends or shortens a lock notifies Redisson's waiters, on the channel for
// each kind.
func TestRedissonWaitersAreNotified(t *testing.T) {
	t.Parallel()
	for how, end := range endings {
		for kind, channel := range map[string]string{"RLock": redissonChannel, "RFairLock": fairChannel} {
			t.Run(how+", "+kind, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := newClient(t, open(t, server, redisstore.Redisson()))
				held := p.request("n")
				p.mustAcquire(held)
				if kind == "RFairLock" {
					waitAsFair(t, server, fairWaiter, time.Minute)
				}
				received := messages(t, server, channel)
				end(t, p, held)
				if m := receive(t, received); m != "0" {
					t.Errorf("message %q, want 0", m)
				}
			})
		}
	}
}

// A fair waiter whose time is over may be dead: the next fair waiter must also be notified. It
// removes the others in Redisson's way, and dibs must not change anything.
func TestDeadFairWaiterHidesNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Redisson()))
	held := p.request("n")
	p.mustAcquire(held)
	waitAsFair(t, server, redissonClient+":7", -time.Second)
	waitAsFair(t, server, fairWaiter, time.Minute)
	waitAsFair(t, server, redissonClient+":29", 2*time.Minute)
	alive, behind := messages(t, server, fairChannel), messages(t, server, redissonChannel+":"+redissonClient+":29")
	p.mustRelease(held, 0)
	if m := receive(t, alive); m != "0" {
		t.Errorf("message %q, want 0", m)
	}
	server.MustCmd(t, "PUBLISH", redissonChannel+":"+redissonClient+":29", "marker")
	if m := receive(t, behind); m != "marker" { // it cannot acquire the lock, and would try again and again
		t.Errorf("the waiter behind the first live one got %q", m)
	}
	if n := server.MustCmd(t, "LLEN", "redisson_lock_queue:{n}"); n != int64(3) {
		t.Errorf("the queue of Redisson has %v elements", n)
	}
}

// While a Redisson client waits, even only for an RFairLock, a release leaves the name free for
// it, though dibs waiters are queued.
func TestReleaseLeavesGapForRedisson(t *testing.T) {
	t.Parallel()
	for what, channel := range map[string]string{"RLock": redissonChannel, "RFairLock": fairChannel} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := watchingClient(t, open(t, server, redisstore.Redisson()))
			held, next := p.request("n"), p.request("n")
			p.mustAcquire(held)
			if what == "RFairLock" {
				waitAsFair(t, server, fairWaiter, time.Minute)
			}
			received := messages(t, server, channel)
			p.mustWait(next)
			p.mustRelease(held, 0)
			if m := receive(t, received); m != "0" {
				t.Errorf("message %q, want 0", m)
			}
			if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != next.Token {
				t.Errorf("event %+v, want no hand-off: the waiter of dibs retries", e)
			}
		})
	}
}

// A disconnected fair waiter costs no gap: its channel has no subscriber.
func TestDeadFairWaiterGetsNoGap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Redisson()))
	held, next := p.request("n"), p.request("n")
	p.mustAcquire(held)
	waitAsFair(t, server, fairWaiter, time.Minute)
	p.mustWait(next)
	p.mustRelease(held, 0)
	p.wantGrant(next)
}

// On a cluster older Redisson versions subscribe to channels that are not sharded, on the slot's
// server. They are also notified, but only if they are there: such a message goes to all servers.
func TestRedissonWaitersOnCluster(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t)
	redistest.SkipBefore7(t, server)
	p := watchingClient(t, open(t, server, redisstore.HiddenCluster(), redisstore.Redisson()))
	server.MustCmd(t, "CONFIG", "RESETSTAT")
	held := p.request("n")
	p.mustAcquire(held)
	p.mustRelease(held, 0)
	if n := commandCalls(t, server, "publish"); n != 0 {
		t.Errorf("%d messages to all servers, though nobody listens", n)
	}
	waitAsFair(t, server, fairWaiter, time.Minute)
	for _, channel := range []string{redissonChannel, fairChannel} {
		p.mustAcquire(held)
		plain, sharded := messages(t, server, channel), shardedSubscriber(t, server, channel)
		next := p.request("n")
		p.mustWait(next)
		p.mustRelease(held, 0)
		if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != next.Token {
			t.Errorf("event %+v, want a gap", e)
		}
		if m := receive(t, plain); m != "0" {
			t.Errorf("message %q, want 0", m)
		}
		if text := sharded(); !strings.HasSuffix(text, "$1\r\n0\r\n") {
			t.Errorf("sharded message %q, want 0", text)
		}
		server.MustCmd(t, "DEL", "{n}"+queue, "{n}"+meta)
	}
}

// A holder is notified on request if Redisson clients wait.
func TestWantedSeesRedisson(t *testing.T) {
	t.Parallel()
	for what, channel := range map[string]string{"nobody": "", "RLock": redissonChannel, "RFairLock": fairChannel} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := newClient(t, open(t, server, redisstore.Redisson()))
			held := p.request("n")
			p.mustAcquire(held)
			waitAsFair(t, server, fairWaiter, time.Minute) // dead, unless it is connected
			if channel != "" {
				messages(t, server, channel)
			}
			wanted, err := p.s.NotifyWanted(t.Context(), driver.WantedRequest{Name: "n", Token: held.Token, Client: held.Client})
			if wanted != (channel != "") || err != nil {
				t.Errorf("wanted %v, %v", wanted, err)
			}
		})
	}
}

// The relevant parts of Redisson's commands.
var (
	//go:embed testdata/redisson_lock.lua
	acquireRedisson string
	//go:embed testdata/redisson_readwrite.lua
	acquireReadWrite string
)

// RReadWriteLock waits for a dibs lock. It takes any other hash for its own lock, even an
// RLock's.
func TestRedissonReadWriteLockIsKeptOut(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"read", "write"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := newClient(t, open(t, server, redisstore.Redisson()))
			enter := func() any {
				return server.MustCmd(t, "EVAL", acquireReadWrite, "1", "n", mode, redissonHolder, "30000")
			}
			held := p.request("n")
			p.mustAcquire(held)
			if left, _ := enter().(int64); left <= 0 {
				t.Errorf("it has entered a lock of dibs: %v", left)
			}
			if err := p.extend(held)[0]; err != nil {
				t.Errorf("extend: %v", err)
			}
			p.mustRelease(held, 0)
			if left := enter(); left != nil {
				t.Fatalf("the name is not free: %v", left)
			}
			err := p.try(held, false)
			wantIs(t, "acquire", err, driver.ErrWrongType)
			if !strings.Contains(fmt.Sprint(err), "Redisson") {
				t.Errorf("%v, want that it names Redisson", err)
			}
		})
	}
}

// A Redisson client's token should not end, extend or share its lock, because the lock has a count.
func TestTokenOfRedissonIsRejected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Redisson()))
	lockByRedisson(t, server, "n")
	server.MustCmd(t, "HINCRBY", "n", redissonHolder, "1")
	theirs := p.request("n")
	theirs.Token = redissonHolder
	ctx := t.Context()
	for verb, run := range map[string]func() error{
		"acquire": func() error { _, err := p.s.Acquire(ctx, theirs); return err },
		"cancel":  func() error { return p.s.Cancel(ctx, theirs) },
		"release": func() error { _, err := p.release(theirs); return err },
		"extend":  func() error { return p.extend(theirs)[0] },
		"revoke": func() error {
			_, err := p.s.Revoke(ctx, driver.RevokeRequest{Name: "n", Token: theirs.Token})
			return err
		},
	} {
		wantIs(t, verb, run(), driver.ErrInvalid)
	}
	mode := p.request("m") // the other field of a dibs lock
	mode.Token = "mode"
	_, err := p.s.Acquire(ctx, mode)
	wantIs(t, "acquire", err, driver.ErrInvalid)
	if count := server.MustCmd(t, "HGET", "n", redissonHolder); count != "2" {
		t.Errorf("the count is %v", count)
	}
}

// redissonRights are the permissions for locking in Redisson mode, from docs/spec.md.
var redissonRights = strings.Fields("resetkeys resetchannels ~n ~{n}:dibs:* ~dibs:fence:* &dibs:c:* nocommands" +
	" +eval +evalsha +subscribe +ping +time +exists +get +set +del +pttl +pexpire" +
	" +zadd +zcard +zcount +zscore +zrank +zrange +zrangebyscore +zrem +zpopmin +hget +hset +hdel +hexists +publish +pubsub|numsub +scan" +
	" +hlen +hgetall +lrange ~redisson_lock_queue:* ~redisson_lock_timeout:* &redisson_lock__channel:*")

// With only the permissions for locking, a Redisson lock is foreign, and must not be ended,
// because its count cannot be compared.
func TestRedissonLockIsForeignWithLeastPermissions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lockByRedisson(t, server, "n")
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, redissonRights...)...)
	p := newClient(t, open(t, server, redisstore.Redisson()))
	state := p.inspect("n")
	f := state.Foreign
	if f == nil || !f.Lock || f.Removable() || f.Kind != "Redisson RLock" || f.Key != "n" || !strings.Contains(f.Advice, "permissions") {
		t.Fatalf("%+v, want a foreign lock that dibs does not end", f)
	}
	if len(state.Holders) != 1 || state.Holders[0].Owner != redissonHolder {
		t.Errorf("held by %+v", state.Holders)
	}
	_, err := p.s.RevokeForeign(t.Context(), "n", *f)
	wantIs(t, "revoke", err, driver.ErrInvalid)
}

// The permissions for locking should be enough to notify Redisson's waiters.
func TestRedissonWaitersWithLeastPermissions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	waitAsFair(t, server, fairWaiter, time.Minute)
	received := messages(t, server, fairChannel)
	server.MustCmd(t, append([]string{"ACL", "SETUSER", "default"}, redissonRights...)...)
	p := newClient(t, open(t, server, redisstore.Redisson()))
	held := p.request("n")
	p.mustAcquire(held)
	p.mustRelease(held, 0)
	if m := receive(t, received); m != "0" {
		t.Errorf("message %q, want 0", m)
	}
}

// The error names the mode in which both sides share the lock.
func TestErrorOfRedissonLockNamesTheMode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plain, mode := newClient(t, open(t, server, redisstore.Prefix(""))), newClient(t, open(t, server, redisstore.Redisson()))
	lockByRedisson(t, server, "theirs")
	mode.mustAcquire(mode.request("ours"))
	for _, name := range []string{"theirs", "ours"} {
		err := plain.try(plain.request(name), false)
		wantIs(t, "acquire", err, driver.ErrWrongType)
		for _, want := range []string{"redisstore.Redisson()", "--redisson"} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	}
	if state := mode.inspect("theirs"); strings.Contains(state.Foreign.Advice, "goredisstore") {
		t.Errorf("in Redisson mode: %q", state.Foreign.Advice)
	}
}

// A job that yields lets in a Redisson client that came after its first question.
func TestYieldLetsRedissonIn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := dibs.New(open(t, server, redisstore.Redisson()), dibs.TTL(time.Second))
	defer locks.Close()
	entered := make(chan error, 1)
	tryToEnter := func() bool {
		reply, err := server.Cmd("EVAL", acquireRedisson, "1", "n", redissonHolder)
		if reply == int64(2) || err != nil {
			entered <- err
			return true
		}
		return false
	}
	err := locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		if err := carried.Yield(ctx, "n"); err != nil {
			return err
		}
		released := messages(t, server, redissonChannel)
		go func() {
			for range released {
				if tryToEnter() {
					return
				}
			}
		}()
		for end := time.Now().Add(generous); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err := carried.Yield(ctx, "n"); err != nil {
				return err
			}
			select {
			case err := <-entered:
				return err
			default:
			}
		}
		return errors.New("Redisson has not entered")
	})
	if err != nil {
		t.Error(err)
	}
}
