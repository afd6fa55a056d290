package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// A waiter that joins raises the queue's TTL, however many dead entries are in it and whichever
// way the queue was left.
func TestJoinRaisesTTLOfQueue(t *testing.T) {
	t.Parallel()
	for kind, options := range serverKinds {
		for what, prepare := range map[string]func(p *testClient, server *redistest.Server){
			"dead entries":       func(_ *testClient, server *redistest.Server) { addEntries(t, server, "n", "dead:1:x", "1/1", 3) },
			"dead multi-locks":   func(_ *testClient, server *redistest.Server) { addEntries(t, server, "n", "dead:1:x", "1/1+", 3) },
			"an older live one":  func(p *testClient, _ *redistest.Server) { p.mustWait(p.request("n")) },
			"passed-over entry":  func(_ *testClient, server *redistest.Server) { addPassedOver(t, server, "n") },
			"a step of the time": func(_ *testClient, server *redistest.Server) { addFuture(t, server, "n") },
		} {
			t.Run(kind+"/"+what, func(t *testing.T) {
				t.Parallel()
				server := startKind(t, kind)
				p := watchingClient(t, open(t, server, append(options, redisstore.Prefix(""))...))
				p.mustAcquire(p.request("n"))
				prepare(p, server)
				age(t, server, "n", 11*time.Second)
				server.MustCmd(t, "PEXPIRE", "{n}"+queue, "2000")
				p.mustWait(p.request("n"))
				if ms, _ := server.MustCmd(t, "PTTL", "{n}"+queue).(int64); ms < 30_000 {
					t.Errorf("the queue expires in %d ms after a waiter has joined", ms)
				}
			})
		}
	}
}

// age makes all entries in a queue older.
func age(t *testing.T, server *redistest.Server, name string, by time.Duration) {
	t.Helper()
	list, _ := server.MustCmd(t, "ZRANGE", "{"+name+"}"+queue, "0", "-1").([]any)
	for _, entry := range list {
		server.MustCmd(t, "ZINCRBY", "{"+name+"}"+queue, fmt.Sprint(-by.Microseconds()), entry.(string))
	}
}

func addPassedOver(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	addEntries(t, server, name, "dead:1:x", "1/1", 1)
	list, _ := server.MustCmd(t, "ZRANGE", "{"+name+"}"+queue, "0", "-1").([]any)
	server.MustCmd(t, "ZINCRBY", "{"+name+"}"+queue, "4503599627370496", list[0].(string))
}

func addFuture(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	addEntries(t, server, name, "dead:1:x", "1/1", 2)
	age(t, server, name, -time.Hour)
}

// A waiter that joins after the clock went back must be behind all others, whatever else is in
// the queue.
func TestTicketIsLargerThanAllOthers(t *testing.T) {
	t.Parallel()
	for _, passedOver := range []bool{false, true} {
		for _, share := range []string{"1/1", "1/3"} {
			t.Run(fmt.Sprint(passedOver, share), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := watchingClient(t, open(t, server, redisstore.Prefix("")))
				p.mustAcquire(p.request("n"))
				addFuture(t, server, "n")
				if passedOver {
					addPassedOver(t, server, "n")
				}
				r := p.request("n")
				if strings.HasSuffix(share, "3") {
					r.Limit = 3
				}
				a := p.mustWait(r)
				next := p.mustWait(p.request("n"))
				if least := uint64(time.Now().Add(59 * time.Minute).UnixMicro()); a.Ticket < least || next.Ticket <= a.Ticket {
					t.Errorf("tickets %d and %d behind one from in an hour", a.Ticket, next.Ticket)
				}
			})
		}
	}
}

// A dead waiter must block a free name for 5 s at most, and the others' replies must say so. On a
// cluster nobody sees that its connection is closed.
func TestDeadMultiLockBlocksForWaiterTTL(t *testing.T) {
	t.Parallel()
	for what, share := range map[string][2]int{"mutex": {1, 1}, "reader": {1, driver.Unlimited}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartClusterNode(t)
			p := watchingClient(t, open(t, server, redisstore.HiddenCluster(), redisstore.Prefix("")))
			first, dead, live := p.request("{n}x"), p.request("{n}x"), p.request("{n}x")
			dead.With = []string{"{n}y"}
			live.Weight, live.Limit = share[0], share[1]
			fence := p.mustAcquire(first)
			p.mustWait(dead)
			begin := time.Now()
			a := p.mustWait(live)
			time.Sleep(driver.WaiterTTL / 10)
			p.mustRelease(first, fence)
			for !a.Held {
				r := live
				r.Ticket = a.Ticket
				a = p.acquire(r)
				if !a.Held {
					if a.Holder != "" || a.Remaining <= 0 || time.Since(begin)+a.Remaining > driver.WaiterTTL+time.Second/2 {
						t.Fatalf("after %v: %+v, want to be told when the dead waiter is removed", time.Since(begin), a)
					}
					time.Sleep(min(a.Remaining+2*time.Millisecond, driver.WaiterTTL/2))
				}
			}
			if took := time.Since(begin); took > driver.WaiterTTL+time.Second {
				t.Errorf("held after %v", took)
			}
		})
	}
}

// A shared lock's TTL is its last holder's, even after another client removed it from the key.
func TestPersistedSharedLock(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(p *testClient, short driver.AcquireRequest){
		"acquire": func(p *testClient, short driver.AcquireRequest) { p.mustAcquire(short) },
		"extend": func(p *testClient, short driver.AcquireRequest) {
			if err := p.extend(short)[0]; err != nil {
				p.t.Fatal(err)
			}
		},
		"release": func(p *testClient, short driver.AcquireRequest) { p.mustRelease(short, 0) },
		"refresh": func(p *testClient, short driver.AcquireRequest) { p.mustAcquire(short); p.mustAcquire(short) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := newClient(t, open(t, server, redisstore.Prefix("")))
			p.mustAcquire(p.sharedRequest("n", 1, driver.Unlimited, time.Minute))
			short := p.sharedRequest("n", 1, driver.Unlimited, time.Second)
			if what != "acquire" {
				p.mustAcquire(short)
			}
			server.MustCmd(t, "PERSIST", "n")
			change(p, short)
			if ms, _ := server.MustCmd(t, "PTTL", "n").(int64); ms < 50_000 {
				t.Errorf("the lock expires in %d ms beside a holder of a minute", ms)
			}
		})
	}
}

// A reply contains only the start of a long value that is not a dibs token.
func TestLongValueIsNotReturned(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	server.MustCmd(t, "SET", "n", strings.Repeat("x", 1<<20))
	several, vote := p.request("n"), p.request("n")
	several.With = []string{"k"}
	for what, do := range map[string]func() driver.AcquireReply{
		"try":      func() driver.AcquireReply { r := p.request("n"); r.Queue = false; return p.acquire(r) },
		"wait":     func() driver.AcquireReply { return p.mustWait(p.request("n")) },
		"reader":   func() driver.AcquireReply { return p.mustWait(p.sharedWaiter("n")) },
		"all":      func() driver.AcquireReply { return p.mustWait(several) },
		"vote":     func() driver.AcquireReply { return p.vote(vote) },
		"resize":   func() driver.AcquireReply { return p.resize(p.sharedRequest("n", 1, 3, time.Minute)) },
		"repeated": func() driver.AcquireReply { r := p.request("n"); p.mustWait(r); return p.mustWait(r) },
	} {
		if a := do(); a.Held || len(a.Holder) > 512 || !strings.HasPrefix(a.Holder, "xxx") {
			t.Errorf("%s: held %v, a holder of %d bytes", what, a.Held, len(a.Holder))
		}
	}
}

func (p *testClient) sharedWaiter(name string) driver.AcquireRequest {
	r := p.sharedRequest(name, 1, driver.Unlimited, time.Minute)
	r.Queue = true
	return r
}

func (p *testClient) vote(r driver.AcquireRequest) driver.AcquireReply {
	p.t.Helper()
	r.Vote = &driver.Vote{Ticket: 1, Fence: 1}
	a, err := p.s.Acquire(p.t.Context(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *testClient) resize(r driver.AcquireRequest) driver.AcquireReply {
	p.t.Helper()
	r.Until = time.Now().Add(generous)
	a, err := p.s.Resize(p.t.Context(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// If a release fails because one of the lock's keys has another type, it does not lose a waiter.
func TestWrongTypeLosesNoWaiter(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"{n}" + meta, "{n}:dibs:holders", "highwater"} {
		for _, old := range []bool{false, true} { // the first waiter joined just now, or some time ago
			t.Run(fmt.Sprint(key, " ", old), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				p := watchingClient(t, open(t, server, redisstore.Prefix("")))
				h, first, second := p.request("n"), p.request("n"), p.request("n")
				highwater := highwaterKeyOf(t, server, p, "n")
				fence := p.mustAcquire(h)
				p.mustWait(first)
				p.mustWait(second)
				if old {
					age(t, server, "n", driver.WaiterTTL/2)
				}
				key := key
				if key == "highwater" {
					key = highwater
				}
				server.MustCmd(t, "DEL", key)
				server.MustCmd(t, "RPUSH", key, "not of dibs")
				for range 40 { // every 32nd release does more
					freed, err := p.s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: h.Token, Fence: fence, Until: time.Now().Add(generous)})
					if err == nil && freed {
						break // it did not need the key
					}
					if n := queueLength(t, server, "n"); n != 2 {
						t.Fatalf("%d waiters after a release that failed: %v", n, err)
					}
				}
				server.MustCmd(t, "DEL", key)
				_, _ = p.release(h)
				p.acquire(first)
				p.wantGrant(first)
			})
		}
	}
}

// The fences for a grant by hand-off begin after the slot's last fence, whichever fence the
// releasing client remembers.
func TestFencesOfHandoffAreNew(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	h, next := p.request("n"), p.request("n")
	old := p.mustAcquire(h)
	var last uint64
	for range 50 {
		last = p.mustAcquire(h) // a repeated request gets a new fence
	}
	p.mustWait(next)
	p.mustRelease(h, old)
	e := p.nextEvent()
	if e.Kind != driver.EventGranted || e.Fence-e.Fences < last {
		t.Errorf("%d fences up to %d, the last one before was %d", e.Fences, e.Fence, last)
	}
}
