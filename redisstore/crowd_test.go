package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// most is how many commands one script may call, whoever waits: some 5 ms of a server
// whose commands take 2 to 5 µs.
const most = 1000

// queues puts places of one client into a name's queue, as claims of it would: share is
// the weight and limit of each.
func queues(t *testing.T, server *redistest.Server, name, client, share string, n int) {
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

// calledBy returns how many commands scripts call in each of their runs while do runs, on
// the average, and how many runs there were.
func calledBy(t *testing.T, server *redistest.Server, do func()) (each, runs int) {
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
		case m[1] != "config|resetstat" && m[1] != "info":
			inner += n
		}
	}
	return inner / max(runs, 1), runs
}

// waiting returns how many places are in a queue.
func waiting(t *testing.T, server *redistest.Server, name string) int {
	t.Helper()
	n, _ := server.MustCmd(t, "ZCARD", "{"+name+"}"+queue).(int64)
	return int(n)
}

// However many died in line, no call takes long for them, and the first living one behind
// them enters: by the release, or by its next heartbeat, if all messages are lost.
func TestDeadCrowd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share string
		n     int
	}{{"1/1", 1000}, {"1/1", 20_000}, {"2147483647/2147483647", 5000}, {"2/3", 5000}, {"1/1+", 5000}} {
		t.Run(fmt.Sprintf("%d of %s", c.n, strings.ReplaceAll(c.share, "/", " of ")), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := join(t, open(t, server, redisstore.Prefix("")))
			holder := p.claim("n")
			fence := p.take(holder)
			queues(t, server, "n", "dead:1:x", c.share, c.n)
			live := p.claim("n")
			p.wait(live)
			each, runs := calledBy(t, server, func() { p.free(holder, fence) })
			if each > most || runs > 2 {
				t.Errorf("a release: %d runs of %d commands", runs, each)
			}
			// Nobody heeds a message here.
			each, runs = calledBy(t, server, func() {
				if a := p.ask(live); !a.Held {
					t.Fatalf("the living one: %+v", a)
				}
			})
			t.Logf("FIGURE %d dead: %d further runs of %d commands", c.n, runs, each)
			if each > most || runs > c.n/100+5 {
				t.Errorf("a heartbeat: %d runs of %d commands", runs, each)
			}
			if each, _ := calledBy(t, server, func() { p.free(live, 0) }); each > most {
				t.Errorf("the next release: %d commands", each)
			}
		})
	}
}

// Where holders share a name, those who come do not pay for the dead in line.
func TestDeadCrowdBesideReaders(t *testing.T) {
	t.Parallel()
	for _, share := range []string{"2147483647/2147483647", "1/2147483647", "1/1"} {
		t.Run(strings.ReplaceAll(share, "/", " of "), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := join(t, open(t, server, redisstore.Prefix("")))
			p.take(p.share("n", 1, driver.Unlimited, time.Minute))
			queues(t, server, "n", "dead:1:x", share, 2000)
			for range 20 {
				reader := p.share("n", 1, driver.Unlimited, time.Minute)
				each, runs := calledBy(t, server, func() { p.ask(reader) })
				if each > most || runs > 2000/100+5 {
					t.Errorf("a try: %d runs of %d commands", runs, each)
				}
			}
			each, _ := calledBy(t, server, func() {
				for range 20 {
					reader := p.share("n", 1, driver.Unlimited, time.Minute)
					reader.Queue = true
					p.take(reader)
				}
			})
			if each > 40 {
				t.Errorf("a reader that queues: %d commands, when the dead are known", each)
			}
		})
	}
}

// Who died in line is forgotten, also while the queue never empties.
func TestDeadCrowdIsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := join(t, open(t, server, redisstore.Prefix("")))
	p.heedless()
	holder := p.claim("n")
	fence := p.take(holder)
	queues(t, server, "n", "dead:1:x", "1/1", 500)
	for end := time.Now().Add(3 * generous); waiting(t, server, "n") > 2; {
		if time.Now().After(end) {
			t.Fatalf("%d still wait", waiting(t, server, "n"))
		}
		next := p.claim("n")
		p.wait(next)
		p.free(holder, fence)
		for held := false; !held; {
			a := p.ask(next)
			held, fence = a.Held, a.Fence
		}
		holder = next
	}
}

// A writer's release lets in all readers that wait: some at once, and the others by
// messages, each of which has one ask who lets in more.
func TestReadersCrowd(t *testing.T) {
	t.Parallel()
	const readers = 3_000 // on a busy machine more would die in the queue
	server := redistest.Start(t)
	p := join(t, open(t, server, redisstore.Prefix("")))
	writer := p.claim("n")
	fence := p.take(writer)
	queues(t, server, "n", p.client, "1/2147483647", readers)
	behind := p.claim("n")
	p.wait(behind)
	each, runs := calledBy(t, server, func() { p.free(writer, fence) })
	if each > most || runs > 2 {
		t.Errorf("a release: %d runs of %d commands", runs, each)
	}
	held, asked := make(map[string]bool), 0
	for len(held) < readers {
		e := p.event()
		if e.Kind == driver.EventGranted {
			if held[e.Token] || e.Token == behind.Token {
				t.Fatalf("%s is granted what it holds, or what readers hold", e.Token)
			}
			held[e.Token] = true
		}
		if e.Kind == driver.EventRetry && e.Token != behind.Token {
			each, _ := calledBy(t, server, func() { p.look(e.Token) })
			if asked++; each > most {
				t.Errorf("a heartbeat: %d commands", each)
			}
		}
	}
	t.Logf("FIGURE %d readers entered by %d calls", readers, asked+1)
	if state := p.inspect("n"); state.Holding != readers || state.Waiting != 1 {
		t.Errorf("%d hold and %d wait", state.Holding, state.Waiting)
	}
}

// look asks again for a reader that was put into the queue of n by hand.
func (p *party) look(token string) driver.AcquireReply {
	p.t.Helper()
	c := driver.AcquireRequest{Name: "n", Token: token, Client: p.client, TTL: driver.WaiterTTL, Weight: 1, Limit: driver.Unlimited, Queue: true}
	_, seq, _ := strings.Cut(token, p.client+":w")
	var err error
	if c.Seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
		p.t.Fatal(err)
	}
	return p.ask(c)
}

// If all messages are lost, the heartbeats that readers give anyway let them in: one of
// each is enough, in whichever order.
func TestReadersCrowdUntold(t *testing.T) {
	t.Parallel()
	const readers = 1000
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	p := join(t, s)
	p.heedless()
	writer := p.claim("n")
	fence := p.take(writer)
	queues(t, server, "n", p.client, "1/2147483647", readers)
	p.free(writer, fence)
	for i := range readers {
		p.look(fmt.Sprintf("%s:w%d", p.client, readers-1-i))
	}
	if state := p.inspect("n"); state.Holding != readers || state.Waiting != 0 {
		t.Errorf("%d hold and %d wait", state.Holding, state.Waiting)
	}
}

// heedless lets no event of a party be heeded.
func (p *party) heedless() {
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

// What many shared and nobody gave back takes no call long to clear up.
func TestDeadReaders(t *testing.T) {
	t.Parallel()
	const readers = 5000
	server := redistest.Start(t)
	p := mute(t, open(t, server, redisstore.Prefix("")))
	p.take(p.share("n", 1, driver.Unlimited, time.Minute))
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
	writer := p.claim("n")
	each, runs := calledBy(t, server, func() { p.wait(writer) })
	t.Logf("FIGURE %d dead readers: %d runs of %d commands", readers, runs, each)
	if each > most {
		t.Errorf("%d runs of %d commands", runs, each)
	}
	if value := server.MustCmd(t, "GET", "n"); value != "dibs:shared 1" {
		t.Errorf("the lock is %q", value)
	}
}
