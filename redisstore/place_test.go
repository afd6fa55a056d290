package redisstore_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// evict removes a request's entry from a name's queue, like a script with a dead waiter.
func evict(t *testing.T, server *redistest.Server, name string, r driver.AcquireRequest) {
	t.Helper()
	list, _ := server.MustCmd(t, "ZRANGE", "{"+name+"}"+queue, "0", "-1").([]any)
	for _, entry := range list {
		if text, _ := entry.(string); strings.HasSuffix(text, " "+r.Token) {
			server.MustCmd(t, "ZREM", "{"+name+"}"+queue, text)
			server.MustCmd(t, "HDEL", "{"+name+"}"+meta, text)
			return
		}
	}
	t.Fatalf("%s is not in the queue of %s", r.Token, name)
}

// again returns a waiter's next request after a reply.
func again(r driver.AcquireRequest, a driver.AcquireReply) driver.AcquireRequest {
	r.Ticket = a.Ticket
	return r
}

// A waiter whose entry was removed returns to its place with its next heartbeat, and stays there.
// A grant that it missed before has a fence that its reply excludes.
func TestRemovedWaiterKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for kind, options := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := startKind(t, kind)
			p := watchingClient(t, open(t, server, append(options, redisstore.Prefix(""))...))
			h, first, second := p.request("n"), p.request("n"), p.request("n")
			fence := p.mustAcquire(h)
			before := p.mustWait(first)
			p.mustWait(second)
			evict(t, server, "n", first)
			a := p.acquire(again(first, before))
			if a.Position != 1 || a.Ticket != before.Ticket {
				t.Fatalf("%+v, want the place of %+v", a, before)
			}
			if a.Fence < fence {
				t.Errorf("the reply excludes fences up to %d, want %d at least", a.Fence, fence)
			}
			p.mustRelease(h, fence)
			if granted := p.wantGrant(first); granted <= a.Fence {
				t.Errorf("fence %d, excluded up to %d", granted, a.Fence)
			}
			p.mustRelease(first, 0)
			p.wantGrant(second)
		})
	}
}

// A multi-lock removed from only one of its queues should be alive in all of them after its next
// heartbeat.
func TestMultiLockRemovedFromOneQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	onX, onY := p.request("x"), p.request("y")
	p.mustAcquire(onX)
	p.mustAcquire(onY)
	first, second := p.request("x"), p.request("x")
	first.With, second.With = []string{"y"}, []string{"y"}
	old := time.Now().Add(-time.Minute).UnixMicro()
	a, b := p.mustWait(first), p.mustWait(second)
	for _, name := range []string{"x", "y"} { // both wait for a minute
		for _, entry := range server.MustCmd(t, "ZRANGE", "{"+name+"}"+queue, "0", "-1").([]any) {
			old++
			server.MustCmd(t, "ZADD", "{"+name+"}"+queue, strconv.FormatInt(old, 10), entry.(string))
		}
		old -= 2
	}
	a.Ticket, b.Ticket = uint64(old+1), uint64(old+2)
	p.mustWait(again(first, a))
	p.mustWait(again(second, b))
	evict(t, server, "y", first)
	p.mustWait(again(first, a))
	p.mustRelease(onX, 0)
	p.mustRelease(onY, 0)
	if a := p.acquire(again(second, b)); a.Held {
		t.Fatal("the second multi-lock overtook the first one")
	}
	if a := p.acquire(again(first, a)); !a.Held {
		t.Fatalf("the first multi-lock: %+v, want held", a)
	}
}

// Each waiter of many multi-locks acquires, even if processes are cut off for longer than their
// entries live, while they are in several queues.
func TestSilentMultiLocks(t *testing.T) {
	t.Parallel()
	loads := 6
	if os.Getenv("DIBS_LONG") == "1" {
		loads = 100
	}
	some := make(chan struct{}, 12) // at once: they mostly wait
	for seed := range loads {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			some <- struct{}{}
			defer func() { <-some }()
			runSilentMultiLocks(t, uint64(seed))
		})
	}
}

// progress records who could enter, and when somebody last did.
type progress struct {
	mu    sync.Mutex
	last  time.Time
	awake map[int]time.Time // client → since when it waits and is not cut off
	worst time.Duration
}

func (p *progress) set(client int, awake bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.awake, client)
	if awake {
		p.awake[client] = time.Now()
	}
}

func (p *progress) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
}

// stuck returns for how long nobody entered though somebody could.
func (p *progress) stuck() (d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, since := range p.awake {
		if p.last.After(since) {
			since = p.last
		}
		d = max(d, time.Since(since))
	}
	p.worst = max(p.worst, d)
	return d
}

func runSilentMultiLocks(t *testing.T, seed uint64) {
	const clients, rounds = 5, 8
	random := rand.New(rand.NewPCG(seed, 1))
	kind := []string{"one server", "cluster"}[seed%2]
	server := startKind(t, kind)
	p := &progress{awake: make(map[int]time.Time)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	for client := range clients {
		proxy := redistest.NewProxy(t, server.Addr())
		conn := redistest.Dial(proxy.Addr())
		t.Cleanup(conn.Close)
		locks := dibs.New(redisstore.New(conn, serverKinds[kind]...), dibs.TTL(3*time.Second))
		t.Cleanup(func() { _ = locks.Close() })
		var wanted [][]string
		for range rounds {
			set := []string{"{load}0", "{load}1", "{load}2"}
			random.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
			wanted = append(wanted, set[:2+random.IntN(2)])
		}
		work, pause := time.Duration(50+random.IntN(400))*time.Millisecond, time.Duration(random.IntN(1500))*time.Millisecond
		silences := []time.Duration{time.Duration(4+random.IntN(4)) * time.Second, time.Duration(4+random.IntN(4)) * time.Second}
		done := make(chan struct{})
		group.Go(func() {
			defer close(done)
			p.set(client, true)
			defer p.set(client, false)
			for _, set := range wanted {
				_ = locks.All(set).Do(ctx, func(context.Context) error { // an error if the client was cut off
					p.enter()
					time.Sleep(work)
					return nil
				})
			}
		})
		group.Go(func() {
			for _, silence := range silences {
				select {
				case <-done:
					return
				case <-time.After(pause):
				}
				p.set(client, false)
				proxy.Freeze()
				time.Sleep(silence)
				proxy.Thaw()
				select {
				case <-done:
				default:
					p.set(client, true)
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { group.Wait(); close(finished) }()
	for {
		select {
		case <-finished:
			t.Logf("FIGURE nobody entered for %v at most", p.worst)
			return
		case <-time.After(50 * time.Millisecond):
		}
		if d := p.stuck(); d > 10*time.Second {
			t.Errorf("seed %d: nobody has entered for %v", seed, d)
			stop()
			<-finished
			return
		}
	}
}
