package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

const (
	redissonClient = "8743c9c0-0795-4907-87fd-6c719a6b4586"
	symfonyToken   = "qLLh3S+GTuCp8g7G3FvlQoNSz8fuQjI82TIVIqlpysQ="
	someUUID       = "6afafe03-cf00-4f8a-9c5e-3d8f1b2a7c44"
)

// write sends another library's lock commands, separated by " | ".
func write(t *testing.T, server *redistest.Server, commands string) {
	t.Helper()
	for _, words := range strings.Split(commands, " | ") {
		server.MustCmd(t, strings.Fields(words)...)
	}
}

// Redisson sends these commands for a mutex on n.
const rlock = "HINCRBY n " + redissonClient + ":40 1 | PEXPIRE n 60000"

// foreignState returns the state of a name whose value dibs did not write, whatever its type.
func foreignState(t *testing.T, s driver.Store, name string) driver.State {
	t.Helper()
	state, err := driver.Complete(s).Inspect(t.Context(), name)
	var wrong *driver.WrongTypeError
	if errors.As(err, &wrong) {
		state, err = wrong.State, nil
	}
	if err != nil || state.Foreign == nil {
		t.Fatalf("inspect %q: %+v, %v: want a value that dibs did not write", name, state, err)
	}
	return state
}

func TestInspectDescribesForeignLocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	for _, c := range []struct {
		name, commands, kind, owner string
		removable                   bool
	}{
		{"a UUID", "SET n " + someUUID + " PX 60000", "lock (string)", someUUID, true},
		{"ShedLock", "SET n ADDED:2026-11-24T10:00:00.123Z@web-1:" + someUUID + " NX PX 60000", "ShedLock", "ADDED:2026-11-24T10:00:00.123Z@web-1:" + someUUID, true},
		{"RLock", rlock, "Redisson RLock", redissonClient + ":40", true},
		{"RReadWriteLock", "HSET n mode read " + redissonClient + ":7 1 | PEXPIRE n 60000", "Redisson read lock", redissonClient + ":7", true},
		{"never", "SET n " + someUUID, "lock (string)", someUUID, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			server.MustCmd(t, "FLUSHALL")
			write(t, server, c.commands)
			state := foreignState(t, s, "n")
			f := state.Foreign
			if f.Kind != c.kind || !f.Lock || f.Removable() != c.removable || f.Key != "n" || f.Type != server.MustCmd(t, "TYPE", "n") {
				t.Errorf("%+v, want %+v", f, c)
			}
			if len(state.Holders) != 1 || state.Holders[0].Token != c.owner || state.Holding != 1 {
				t.Errorf("held by %+v, want %q", state.Holders, c.owner)
			}
			ttl, _ := server.MustCmd(t, "PTTL", "n").(int64)
			if have := state.Holders[0].Remaining; ttl < 0 != (have < 0) || ttl >= 0 && (have > time.Minute || have < 50*time.Second) {
				t.Errorf("expires in %v, want %d ms", have, ttl)
			}
		})
	}
}

// A lock released before its description is not an error.
func TestForeignLockEndsDuringInspect(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	write(t, server, rlock)
	conn := &describeHook{Conn: redistest.Dial(server.Addr()), before: func() { server.MustCmd(t, "DEL", "n") }}
	t.Cleanup(conn.Close)
	state, err := redisstore.New(conn, redisstore.Prefix("")).Inspect(t.Context(), "n")
	if err != nil || len(state.Holders) > 0 || state.Foreign != nil {
		t.Errorf("%+v, %v: want a free name", state, err)
	}
	if !conn.called {
		t.Error("the lock was not to be described")
	}
}

// A describeHook is a Conn that calls a function before describe's first call.
type describeHook struct {
	*redistest.Conn
	before func()
	called bool
}

func (c *describeHook) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if !c.called && cmds[0].Script == wire.Plain().Describe {
		c.called = true
		c.before()
	}
	c.Conn.Do(ctx, until, cmds, replies)
}

// A dibs lock is never described as foreign: a mutex, shared holders, a reserved name. A token
// chosen by the program is known after a renewal.
func TestOwnLocksAreNotForeign(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server))
	p.client = "host:77:kFLLirqc6sneINPI"
	chosen := p.request("chosen")
	chosen.Token = "order-17"
	p.mustAcquire(chosen)
	if err := p.extend(chosen)[0]; err != nil {
		t.Fatal(err)
	}
	p.mustAcquire(p.request("mutex"))
	p.mustAcquire(p.sharedRequest("shared", 1, 3, time.Minute))
	reserved := p.request("reserved")
	p.mustAcquire(reserved)
	if ok, err := p.s.Release(t.Context(), driver.ReleaseRequest{Name: "reserved", Token: reserved.Token, Reserve: time.Minute, Until: time.Now().Add(generous)}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, name := range []string{"chosen", "mutex", "shared", "reserved", "free"} {
		if state := p.inspect(name); state.Foreign != nil {
			t.Errorf("%s: %+v", name, state.Foreign)
		}
	}
}

// A description reads a bounded part of a large value.
func TestDescriptionsAreBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	big := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name string
		fill func()
	}{
		{"a hash of many fields", func() {
			for i := range 2000 {
				server.MustCmd(t, "HSET", "n", strconv.Itoa(i), big[:1000])
			}
		}},
		{"a hash of large fields", func() { server.MustCmd(t, "HSET", "n", big, big, "mode", big) }},
		{"a sorted set", func() {
			for i := range 200 {
				server.MustCmd(t, "ZADD", "n", strconv.Itoa(i), strconv.Itoa(i)+big[:10000])
			}
		}},
		{"a list", func() { server.MustCmd(t, "RPUSH", "n", big) }},
		{"a string", func() { server.MustCmd(t, "SET", "n", big, "PX", "60000") }},
		{"a string at an auxiliary key", func() { server.MustCmd(t, "SET", "{n}:dibs:queue", big) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			server.MustCmd(t, "FLUSHALL")
			c.fill()
			_, _ = s.Inspect(t.Context(), "n") // so that the server loads the scripts
			before := outputOf(t, server)
			state := foreignState(t, s, "n")
			if f := state.Foreign; f.Lock || f.Removable() {
				t.Errorf("%+v, want data", f)
			}
			if sent := outputOf(t, server) - before; sent > 70_000 {
				t.Errorf("the server sent %d bytes", sent)
			}
		})
	}
}

// outputOf returns how many bytes a server sent.
func outputOf(t *testing.T, server *redistest.Server) int {
	t.Helper()
	info, _ := server.MustCmd(t, "INFO", "stats").(string)
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "total_net_output_bytes:"); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("INFO has no total_net_output_bytes")
	return 0
}

// A user without read permission for values with other types still gets ErrWrongType.
func TestWrongTypeWithLeastPermissions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	write(t, server, strings.ReplaceAll(rlock, "n ", "lock:n "))
	server.MustCmd(t, "ACL", "SETUSER", "default", "-type", "-hlen", "-hkeys")
	p := newClient(t, open(t, server))
	err := p.try(p.request("n"), false)
	wantIs(t, "acquire", err, driver.ErrWrongType)
	if !strings.Contains(err.Error(), `acquire "n": the key holds a value that is not a lock`) {
		t.Error(err)
	}
}

func revokeForeign(t *testing.T, s driver.Store, seen driver.State) (did string) {
	t.Helper()
	did, err := driver.Complete(s).RevokeForeign(t.Context(), "n", *seen.Foreign)
	if err != nil {
		t.Fatal(err)
	}
	return did
}

// messages subscribes to a channel, and returns its messages.
func messages(t *testing.T, server *redistest.Server, channel string) <-chan string {
	t.Helper()
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	received := make(chan string, 10)
	go func() {
		_ = conn.Subscribe(t.Context(), channel, func() bool { return true }, func(m string) { received <- m })
	}()
	if m := receive(t, received); m != "" {
		t.Fatalf("first message %q, want the confirmation", m)
	}
	return received
}

func receive(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(generous):
		t.Fatal("no message")
		return ""
	}
}

// A Redisson lock is ended in the same way as by forceUnlock.
func TestRevokeForeignLocksOfRedisson(t *testing.T) {
	t.Parallel()
	const first = redissonClient + ":28"
	for _, c := range []struct{ name, commands, channel, message string }{
		{"RLock", rlock, "redisson_lock__channel:{n}", "0"},
		{"RFairLock", rlock + " | RPUSH redisson_lock_queue:{n} " + first, "redisson_lock__channel:{n}:" + first, "0"},
		{"RFairLock, and a client of RLock", rlock + " | RPUSH redisson_lock_queue:{n} " + first, "redisson_lock__channel:{n}", "0"},
		{"a reader", "HSET n mode read " + redissonClient + ":1 1 | PEXPIRE n 60000", "redisson_rwlock:{n}", "0"},
		{"a writer", "HSET n mode write " + redissonClient + ":1:write 1 | PEXPIRE n 60000", "redisson_rwlock:{n}", "1"},
	} {
		for mode, option := range map[string]redisstore.Option{"": redisstore.Prefix(""), ", in Redisson mode": redisstore.Redisson()} {
			t.Run(c.name+mode, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				s := open(t, server, option)
				write(t, server, c.commands)
				received := messages(t, server, c.channel)
				if did := revokeForeign(t, s, foreignState(t, s, "n")); !strings.HasPrefix(did, "deleted the key n, and published "+c.message+" on ") || !strings.HasSuffix(did, "(subscribers: 1)") {
					t.Errorf("it did %q", did)
				}
				if m := receive(t, received); m != c.message {
					t.Errorf("message %q, want %q", m, c.message)
				}
				if server.MustCmd(t, "EXISTS", "n") != int64(0) {
					t.Error("the lock exists")
				}
			})
		}
	}
}

// On a cluster Redisson subscribes to sharded channels.
func TestRevokeForeignOnACluster(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t)
	redistest.SkipBefore7(t, server)
	s := open(t, server, redisstore.Prefix(""), redisstore.HiddenCluster())
	for _, c := range []struct{ commands, channel string }{
		{rlock, "redisson_lock__channel:{n}"},
		{rlock + " | RPUSH redisson_lock_queue:{n} " + redissonClient + ":28", "redisson_lock__channel:{n}:" + redissonClient + ":28"},
		{"HSET n mode read " + redissonClient + ":1 1 | PEXPIRE n 60000", "redisson_rwlock:{n}"},
	} {
		write(t, server, c.commands)
		subscribed := shardedSubscriber(t, server, c.channel)
		if did := revokeForeign(t, s, foreignState(t, s, "n")); !strings.HasPrefix(did, "deleted the key n, and published ") {
			t.Errorf("it did %q", did)
		}
		if text := subscribed(); !strings.Contains(text, "smessage") || !strings.HasSuffix(text, "$1\r\n0\r\n") {
			t.Errorf("received %q", text)
		}
	}
	write(t, server, "SET n "+someUUID+" PX 60000")
	if did := revokeForeign(t, s, foreignState(t, s, "n")); did != "deleted the key n" {
		t.Errorf("it did %q", did)
	}
}

// shardedSubscriber subscribes to a sharded channel. The returned function waits for the next
// message, and returns it as it was sent.
func shardedSubscriber(t *testing.T, server *redistest.Server, channel string) (next func() string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	next = func() string {
		t.Helper()
		var read [1000]byte
		_ = conn.SetReadDeadline(time.Now().Add(generous)) // never fails on an open connection
		n, err := conn.Read(read[:])
		if err != nil {
			t.Fatal(err)
		}
		return string(read[:n])
	}
	if _, err := fmt.Fprintf(conn, "SSUBSCRIBE %s\r\n", channel); err != nil {
		t.Fatal(err)
	}
	if text := next(); !strings.Contains(text, "ssubscribe") {
		t.Fatalf("SSUBSCRIBE: %q", text)
	}
	return next
}

// The next dibs waiter gets the name.
func TestRevokeForeignHandsOff(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	write(t, server, "SET n "+someUUID+" PX 60000")
	waiter := p.request("n")
	p.mustWait(waiter)
	if did := revokeForeign(t, p.s, foreignState(t, p.s, "n")); did != "deleted the key n" {
		t.Errorf("it did %q", did)
	}
	p.wantGrant(waiter)
	if holders := p.inspect("n").Holders; len(holders) != 1 || holders[0].Token != waiter.Token {
		t.Errorf("held by %+v", holders)
	}
}

// A lock changed since its description should be left alone.
func TestRevokeForeignComparesTheLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	const text = "SET n some-owner PX 60000"
	for _, c := range []struct{ name, seen, later string }{
		{"another value", "SET n " + someUUID + " PX 60000", "SET n " + redissonClient + " PX 60000"},
		{"released", "SET n " + someUUID + " PX 60000", "DEL n"},
		{"without a TTL", "SET n " + someUUID + " PX 60000", "PERSIST n"},
		{"another type", "SET n " + someUUID + " PX 60000", "DEL n | " + rlock},
		{"the same text, acquired again", text, "SET n some-owner PX 30000"},
		{"another thread", rlock, "DEL n | HINCRBY n " + redissonClient + ":41 1 | PEXPIRE n 60000"},
		{"another count", rlock, "HINCRBY n " + redissonClient + ":40 1"},
		{"another reader", "HSET n mode read " + redissonClient + ":1 1 | PEXPIRE n 60000", "HSET n " + redissonClient + ":2 1"},
		{"a hash without a TTL", rlock, "PERSIST n"},
		{"a string", rlock, "DEL n | SET n " + someUUID + " PX 60000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server.MustCmd(t, "FLUSHALL")
			write(t, server, c.seen)
			seen := foreignState(t, s, "n")
			write(t, server, c.later)
			before := server.MustCmd(t, "DUMP", "n")
			if did := revokeForeign(t, s, seen); did != "" {
				t.Errorf("it did %q", did)
			}
			if after := server.MustCmd(t, "DUMP", "n"); after != before {
				t.Errorf("%q is now %q", before, after)
			}
		})
	}
	t.Run("unchanged", func(t *testing.T) {
		server.MustCmd(t, "FLUSHALL")
		write(t, server, text)
		if did := revokeForeign(t, s, foreignState(t, s, "n")); did != "deleted the key n" {
			t.Errorf("it did %q", did)
		}
	})
}

// While another program sets new locks all the time, each ended lock must be the lock in the
// description.
func TestRevokeForeignAgainstNewLocks(t *testing.T) {
	t.Parallel()
	const rounds = 2000
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	ended := make(map[string]bool)
	stop := make(chan struct{})
	var revoking sync.WaitGroup
	revoking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			state, err := s.Inspect(t.Context(), "n")
			if err != nil || state.Foreign == nil {
				continue
			}
			did, err := s.RevokeForeign(t.Context(), "n", *state.Foreign)
			if err != nil {
				t.Error(err)
				return
			}
			if did != "" {
				ended[state.Holders[0].Token] = true
			}
		}
	})
	var gone []string // locks deleted before the next was set
	last := ""
	for i := range rounds {
		token := fmt.Sprintf("6afafe03-cf00-4f8a-9c5e-%012d", i)
		if previous := server.MustCmd(t, "SET", "n", token, "PX", "60000", "GET"); previous == nil && last != "" {
			gone = append(gone, last)
		}
		last = token
	}
	close(stop)
	revoking.Wait()
	delete(ended, last)
	for _, token := range gone {
		if !ended[token] {
			t.Errorf("%s was deleted, and another lock was to be ended", token)
		}
	}
	if len(ended) != len(gone) || len(gone) == 0 {
		t.Errorf("%d were ended, and %d are gone", len(ended), len(gone))
	}
}

// Only a foreign lock with a TTL should be deleted.
func TestRevokeForeignRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	for _, commands := range []string{
		"SET n 3", "SET n 3 PX 60000", "SET n " + someUUID, "HSET n id 42", "RPUSH n a", "ZADD n 10 alice",
		"HINCRBY n " + redissonClient + ":40 1", "SET n {} PX 60000",
		"ZADD n 99999999999 " + symfonyToken, "SADD {n}:dibs:queue a",
	} {
		server.MustCmd(t, "FLUSHALL")
		write(t, server, commands)
		keys := fmt.Sprint(keysOf(t, server))
		state := foreignState(t, s, "n")
		if state.Foreign.Removable() || state.Foreign.Advice == "" {
			t.Errorf("%s: %+v", commands, state.Foreign)
		}
		_, err := s.RevokeForeign(t.Context(), "n", *state.Foreign)
		wantIs(t, commands, err, driver.ErrInvalid)
		if after := fmt.Sprint(keysOf(t, server)); after != keys {
			t.Errorf("%s: keys %s are now %s", commands, keys, after)
		}
	}
	write(t, server, "FLUSHALL | SET n "+someUUID+" PX 60000")
	_, err := s.RevokeForeign(t.Context(), "m", *foreignState(t, s, "n").Foreign)
	wantIs(t, "another name", err, driver.ErrInvalid)
	_, err = s.RevokeForeign(t.Context(), "n", driver.Foreign{Mark: "another"})
	wantIs(t, "a description of another store", err, driver.ErrInvalid)
}
