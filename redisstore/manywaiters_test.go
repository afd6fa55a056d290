package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// maxCommands is how many commands a script may call, whatever the queue: about 5 ms for a server
// whose commands take 2 to 5 µs.
const maxCommands = 1000

// addEntries adds a client's entries to a name's queue, as its requests would. share is each
// entry's weight and limit.
func addEntries(t *testing.T, server *redistest.Server, name, client, share string, n int) {
	t.Helper()
	now := time.Now().UnixMicro()
	for first := 0; first < n; first += 1000 {
		cmd := []string{"ZADD", "{" + name + "}" + queue}
		for i := first; i < min(n, first+1000); i++ {
			cmd = append(cmd, strconv.FormatInt(now+int64(i), 10), fmt.Sprintf("%016x 5000 %s %s %s:w%d", i, share, client, client, i))
		}
		server.MustCmd(t, cmd...)
	}
	server.MustCmd(t, "PEXPIRE", "{"+name+"}"+queue, "60000")
}

var calls = regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`)

// countCommands returns how many commands a script run calls on average while do runs, and the
// number of runs.
func countCommands(t *testing.T, server *redistest.Server, do func()) (each, runs int) {
	t.Helper()
	server.MustCmd(t, "CONFIG", "RESETSTAT")
	do()
	text, _ := server.MustCmd(t, "INFO", "commandstats").(string)
	inner := 0
	for _, m := range calls.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[2])
		switch {
		case strings.HasPrefix(m[1], "eval"):
			runs += n
		case m[1] != "config|resetstat" && m[1] != "config" && m[1] != "info": // Redis before 7 counts no subcommands
			inner += n
		}
	}
	return inner / max(runs, 1), runs
}

// queueLength returns how many entries are in a queue.
func queueLength(t *testing.T, server *redistest.Server, name string) int {
	t.Helper()
	n, _ := server.MustCmd(t, "ZCARD", "{"+name+"}"+queue).(int64)
	return int(n)
}

// However many waiters died in the queue, no call takes long because of them. The first live
// waiter behind them acquires: through the release, or by its next heartbeat if all messages are
// lost.
func TestManyDeadWaiters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share string
		n     int
	}{{"1/1", 1000}, {"1/1", 20_000}, {"2147483647/2147483647", 5000}, {"2/3", 5000}, {"1/1+", 5000}} {
		t.Run(fmt.Sprintf("%d of %s", c.n, strings.ReplaceAll(c.share, "/", " of ")), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := watchingClient(t, open(t, server, redisstore.Prefix("")))
			holder := p.request("n")
			fence := p.mustAcquire(holder)
			addEntries(t, server, "n", "dead:1:x", c.share, c.n)
			live := p.request("n")
			p.mustWait(live)
			each, runs := countCommands(t, server, func() { p.mustRelease(holder, fence) })
			if each > maxCommands || runs > 2 {
				t.Errorf("a release: %d runs of %d commands", runs, each)
			}
			// No client handles a message here.
			each, runs = countCommands(t, server, func() {
				if a := p.acquire(live); !a.Held {
					t.Fatalf("the live waiter: %+v", a)
				}
			})
			t.Logf("FIGURE %d dead: %d further runs of %d commands", c.n, runs, each)
			if each > maxCommands || runs > c.n/100+5 {
				t.Errorf("a heartbeat: %d runs of %d commands", runs, each)
			}
			if each, _ := countCommands(t, server, func() { p.mustRelease(live, 0) }); each > maxCommands {
				t.Errorf("the next release: %d commands", each)
			}
		})
	}
}

// While readers hold, new requests do not pay for the dead waiters in the queue.
func TestManyDeadWaitersBesideReaders(t *testing.T) {
	t.Parallel()
	for _, share := range []string{"2147483647/2147483647", "1/2147483647", "1/1"} {
		t.Run(strings.ReplaceAll(share, "/", " of "), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := watchingClient(t, open(t, server, redisstore.Prefix("")))
			p.mustAcquire(p.sharedRequest("n", 1, driver.Unlimited, time.Minute))
			addEntries(t, server, "n", "dead:1:x", share, 2000)
			for range 20 {
				reader := p.sharedRequest("n", 1, driver.Unlimited, time.Minute)
				each, runs := countCommands(t, server, func() { p.acquire(reader) })
				if each > maxCommands || runs > 2000/100+5 {
					t.Errorf("a try: %d runs of %d commands", runs, each)
				}
			}
			each, _ := countCommands(t, server, func() {
				for range 20 {
					reader := p.sharedRequest("n", 1, driver.Unlimited, time.Minute)
					reader.Queue = true
					p.mustAcquire(reader)
				}
			})
			if each > 40 {
				t.Errorf("a reader that queues: %d commands, after the dead waiters were examined", each)
			}
		})
	}
}

// Dead waiters are removed, also if the queue never becomes empty.
func TestDeadWaitersAreRemoved(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	p.discardEvents()
	holder := p.request("n")
	fence := p.mustAcquire(holder)
	addEntries(t, server, "n", "dead:1:x", "1/1", 500)
	for end := time.Now().Add(3 * generous); queueLength(t, server, "n") > 2; {
		if time.Now().After(end) {
			t.Fatalf("%d still wait", queueLength(t, server, "n"))
		}
		next := p.request("n")
		p.mustWait(next)
		p.mustRelease(holder, fence)
		for held := false; !held; {
			a := p.acquire(next)
			held, fence = a.Held, a.Fence
		}
		holder = next
	}
}

// A writer's release should let in all waiting readers: some at once, the others by notifications.
// Each notification causes a retry that lets in more.
func TestManyReaders(t *testing.T) {
	t.Parallel()
	const readers = 3_000 // on a busy machine more would die in the queue
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server, redisstore.Prefix("")))
	writer := p.request("n")
	fence := p.mustAcquire(writer)
	addEntries(t, server, "n", p.client, "1/2147483647", readers)
	behind := p.request("n")
	p.mustWait(behind)
	each, runs := countCommands(t, server, func() { p.mustRelease(writer, fence) })
	if each > maxCommands || runs > 2 {
		t.Errorf("a release: %d runs of %d commands", runs, each)
	}
	held, retries := make(map[string]bool), 0
	for len(held) < readers {
		e := p.nextEvent()
		if e.Kind == driver.EventGranted {
			if held[e.Token] || e.Token == behind.Token {
				t.Fatalf("%s is granted a second time, or beside readers", e.Token)
			}
			held[e.Token] = true
		}
		if e.Kind == driver.EventRetry && e.Token != behind.Token {
			each, _ := countCommands(t, server, func() { p.retryEntry(e.Token) })
			if retries++; each > maxCommands {
				t.Errorf("a heartbeat: %d commands", each)
			}
		}
	}
	t.Logf("FIGURE %d readers entered by %d calls", readers, retries+1)
	if state := p.inspect("n"); state.Holding != readers || state.Waiting != 1 {
		t.Errorf("%d hold and %d wait", state.Holding, state.Waiting)
	}
}

// retryEntry repeats a reader's request that was added to n's queue by hand.
func (p *testClient) retryEntry(token string) driver.AcquireReply {
	p.t.Helper()
	r := driver.AcquireRequest{Name: "n", Token: token, Client: p.client, TTL: driver.WaiterTTL, Weight: 1, Limit: driver.Unlimited, Queue: true}
	_, seq, _ := strings.Cut(token, p.client+":w")
	var err error
	if r.Seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
		p.t.Fatal(err)
	}
	return p.acquire(r)
}

// If all messages are lost, the regular heartbeats let in the readers: a heartbeat from each is
// enough, in any order.
func TestManyReadersWithoutNotifications(t *testing.T) {
	t.Parallel()
	const readers = 300 // with more readers, on a busy machine the first would expire before the last enters
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	p := watchingClient(t, s)
	p.discardEvents()
	writer := p.request("n")
	fence := p.mustAcquire(writer)
	addEntries(t, server, "n", p.client, "1/2147483647", readers)
	p.mustRelease(writer, fence)
	for i := range readers {
		p.retryEntry(fmt.Sprintf("%s:w%d", p.client, readers-1-i))
	}
	if state := p.inspect("n"); state.Holding != readers || state.Waiting != 0 {
		t.Errorf("%d hold and %d wait", state.Holding, state.Waiting)
	}
}

// discardEvents discards a client's events.
func (p *testClient) discardEvents() {
	go func() {
		for {
			select {
			case <-p.events:
			case <-p.t.Context().Done():
				return
			}
		}
	}()
}

// Many shared leases that expired without a release should not slow down any call.
func TestManyExpiredReaders(t *testing.T) {
	t.Parallel()
	const readers = 5000
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	p.mustAcquire(p.sharedRequest("n", 1, driver.Unlimited, time.Minute))
	for first := 0; first < readers; first += 1000 {
		add, set := []string{"ZADD", "{n}" + shared}, []string{"HSET", "{n}" + meta}
		for i := first; i < first+1000; i++ {
			add = append(add, "1000", fmt.Sprint("dead:", i)) // 1970
			set = append(set, fmt.Sprint("=dead:", i), "1 1 dead")
		}
		server.MustCmd(t, add...)
		server.MustCmd(t, set...)
	}
	server.MustCmd(t, "SET", "n", fmt.Sprint("dibs:shared ", readers+1), "PX", "60000")
	writer := p.request("n")
	each, runs := countCommands(t, server, func() { p.mustWait(writer) })
	t.Logf("FIGURE %d dead readers: %d runs of %d commands", readers, runs, each)
	if each > maxCommands {
		t.Errorf("%d runs of %d commands", runs, each)
	}
	if value := server.MustCmd(t, "GET", "n"); value != "dibs:shared 1" {
		t.Errorf("the lock is %q", value)
	}
}
