package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

const foreignToken = "bab04ed2e66211ef9a3b" // as redis-py makes them

// holdForeign makes another library's client hold the name.
func holdForeign(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	if ok := server.MustCmd(t, "SET", name, foreignToken, "NX", "PX", "60000"); ok != "OK" {
		t.Fatalf("the name %s is not free: %v", name, ok)
	}
}

// Nobody notifies a waiter when a foreign lock is released. So the first waiter, and no other,
// polls.
func TestOnlyFirstWaiterPolls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	holdForeign(t, server, "n")
	first, second, own := p.request("n"), p.request("n"), p.request("own")
	for range 2 { // the first request joins the queue, and the second is a heartbeat
		if reply := p.acquire(first); reply.Held || reply.Holder != foreignToken || reply.Poll <= 0 {
			t.Errorf("first waiter: %+v, want that it polls", reply)
		}
		if reply := p.acquire(second); reply.Held || reply.Position != 2 || reply.Poll != 0 {
			t.Errorf("second waiter: %+v, want that it does not poll", reply)
		}
	}
	held := p.request("own")
	p.mustAcquire(held)
	for range 2 {
		if reply := p.acquire(own); reply.Held || reply.Poll != 0 {
			t.Errorf("behind dibs: %+v, want that it does not poll", reply)
		}
	}
}

// A user's own token can look like another library's. Nobody polls, and each release is a
// hand-off.
func TestOwnTokenIsNotForeign(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	own := func(i int) driver.AcquireRequest {
		r := p.request("n")
		r.Token = fmt.Sprintf("request-%d", i)
		return r
	}
	p.mustAcquire(own(0))
	begin := time.Now()
	for i := 0; time.Since(begin) < 1200*time.Millisecond; i++ { // a mixed name has a gap each second
		next := own(i + 1)
		p.mustWait(next)
		if reply := p.acquire(next); reply.Held || reply.Poll != 0 {
			t.Fatalf("behind %s: %+v, want that it does not poll", own(i).Token, reply)
		}
		p.mustRelease(own(i), 0)
		p.wantGrant(next)
	}
}

// While a foreign client wants the name, a release leaves it free for a moment: dibs' waiters
// stay in the queue, and the foreign client can get it. Then the first waiter is next.
func TestReleaseLeavesGap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	const tries = 50 // a busy machine may take longer than the gap
	for try := range tries {
		if releaseLeavesGap(t, p, server, fmt.Sprint("n", try)) {
			return
		}
	}
	t.Errorf("in none of %d gaps there was time to look", tries)
}

// releaseLeavesGap returns false if the gap had passed before the test looked at it.
func releaseLeavesGap(t *testing.T, p *testClient, server *redistest.Server, name string) bool {
	t.Helper()
	const shortest = 25 * time.Millisecond // shortest gap
	holdForeign(t, server, name)
	first, second := p.request(name), p.request(name)
	p.mustWait(first)
	p.acquire(first) // it polls, and records the foreign holder
	server.MustCmd(t, "DEL", name)
	p.mustAcquire(first)
	p.wantGrant(first)
	p.mustWait(second)
	begin := time.Now()
	p.mustRelease(first, 0)
	if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != second.Token {
		t.Fatalf("event %+v, want that the second waiter retries", e)
	}
	value, reply := server.MustCmd(t, "GET", name), p.acquire(second)
	if time.Since(begin) >= shortest {
		return false
	}
	if value != nil {
		t.Fatalf("the key holds %v, want that it is free", value)
	}
	if reply.Held || reply.Holder != "" || reply.Remaining <= 0 || reply.Remaining > 200*time.Millisecond || reply.Poll <= 0 {
		t.Errorf("in the gap: %+v, want that it waits for the end", reply)
	}
	holdForeign(t, server, name)
	if reply := p.acquire(second); reply.Held || reply.Holder != foreignToken {
		t.Errorf("after the gap: %+v", reply)
	}
	server.MustCmd(t, "DEL", name)
	p.eventually("the waiter acquires the name after the gap", func() bool { return p.acquire(second).Held })
	return true
}

// A try does not wait, so it need not be fair: it should find a name free in a gap, if no dibs
// client waits.
func TestTryAcquiresInGap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	holdForeign(t, server, "n")
	first := p.request("n")
	p.mustWait(first)
	p.acquire(first)
	server.MustCmd(t, "DEL", "n")
	p.mustAcquire(first)
	p.mustRelease(first, 0)
	if reply := p.acquire(p.request("n")); reply.Held {
		t.Errorf("%+v, want that a request that can wait leaves the gap", reply)
	}
	server.MustCmd(t, "DEL", "{n}"+queue)
	try := p.request("n")
	try.Queue = false
	p.mustAcquire(try)
}

// Mixed names are left free now and then, even if no foreign holder was seen.
func TestMixedLeavesGapsUnseen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix(""), redisstore.SharedKeys()))
	held := p.request("n")
	p.mustAcquire(held)
	begin := time.Now()
	for {
		next := p.request("n")
		p.mustWait(next)
		p.mustRelease(held, 0)
		e := p.nextEvent()
		if e.Kind == driver.EventRetry {
			break
		}
		if held = next; time.Since(begin) > generous {
			t.Fatalf("no gap in %v", generous)
		}
	}
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("the first gap came after %v, want 1 s", took)
	}
}

// A server without memory still releases a mixed name.
func TestMixedReleaseWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix(""), redisstore.SharedKeys()))
	held, next := p.request("n"), p.request("n")
	p.mustAcquire(held)
	p.mustWait(next)
	server.MustCmd(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	server.MustCmd(t, "CONFIG", "SET", "maxmemory", "1")
	p.mustRelease(held, 0)
	p.wantGrant(next)
	p.mustRelease(next, 0)
	if value := server.MustCmd(t, "GET", "n"); value != nil {
		t.Errorf("the key holds %v", value)
	}
}
