//go:build linux

package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// candidate is a child that runs for the job, for ever, and resigns when it is told.
// It reports "leads TIME TERM" and "ends TIME TERM WHY": when its work begins, and
// when it ends. Once it is told to listen, it reports "heard TIME" when another one was
// told to "call" it, which reports "called TIME": that is a message, and no lock.
func candidateChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{Renewed: func(dibs.Renewed) { emit("renewed %d", mono()) }})
	election := locks.Election(job)
	emit("ready")
	go func() {
		err := election.Run(context.Background(), func(ctx context.Context) error {
			at := mono()
			emit("leads %d %d", at, dibs.Fence(ctx))
			<-ctx.Done()
			why := "lost"
			if errors.Is(context.Cause(ctx), dibs.ErrResigned) {
				why = "resigned"
			}
			term := dibs.Fence(ctx)
			at = mono()
			go emit("ends %d %d %s", at, term, why) // and not before it is given back
			return ctx.Err()
		})
		emit("broken %v", err)
	}()
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr})
	for command := range commands {
		verb, whom, _ := strings.Cut(command, " ")
		switch verb {
		case "resign":
			election.Resign()
		case "listen":
			calls := rdb.Subscribe(context.Background(), "call:"+o.Who)
			_, err := calls.Receive(context.Background())
			emit("listens %d 0 %v", mono(), err)
			go func() {
				for {
					_, err := calls.ReceiveMessage(context.Background())
					emit("heard %d 0 %v", mono(), err)
				}
			}()
		case "call":
			at := mono()
			err := rdb.Publish(context.Background(), "call:"+whom, "").Err()
			emit("called %d 0 %v", at, err)
		}
	}
}

// A term is what a candidate reports of one.
type term struct {
	of   *child
	what string // leads, ends, broken; listens, called, heard
	at   time.Duration
	term uint64
	why  string // of its end
}

// message returns how long a message from one candidate takes to another.
func (a *candidates) messageTime(from, to *child) time.Duration {
	a.t.Helper()
	from.send("call " + to.who)
	var called, heard term
	for patience := time.After(generous); called.of == nil || heard.of == nil; {
		select {
		case r := <-a.terms:
			switch {
			case r.what == "called" && r.of == from && r.why == "<nil>":
				called = r
			case r.what == "heard" && r.of == to && r.why == "<nil>":
				heard = r
			default:
				a.t.Fatalf("%+v, want a call", r)
			}
		case <-patience:
			a.t.Fatal("a call is not heard")
		}
	}
	return heard.at - called.at
}

// An assembly is five candidates, and what they report.
type candidates struct {
	*fixture
	addr    string
	members []*child
	terms   chan term
	seen    term // the last that led
}

func (b *fixture) startCandidates(addr string, lease time.Duration) *candidates {
	b.t.Helper()
	a := &candidates{fixture: b, addr: addr, terms: make(chan term, 1<<10)}
	for range 5 {
		a.add(lease)
	}
	return a
}

// enter adds a candidate.
func (a *candidates) add(lease time.Duration) {
	a.t.Helper()
	who := fmt.Sprint(len(a.members))
	c := a.spawn(childConfig{Role: "candidate", Addr: a.addr, TTL: lease, Who: who})
	c.who = who
	a.members = append(a.members, c)
	go func() {
		for line := range c.lines {
			f := strings.Fields(line)
			r := term{of: c, what: f[0]}
			switch f[0] {
			case "leads", "ends", "listens", "called", "heard":
				r.at, r.term = number(a.t, f[1]), uint64(number(a.t, f[2]))
				r.why = strings.Join(f[3:], " ")
			case "broken":
				r.why = line
			default:
				continue
			}
			a.terms <- r
		}
	}()
}

// until returns the next report of a kind. Each term that begins must have a larger
// number than those before it.
func (a *candidates) awaitReport(what string) term {
	a.t.Helper()
	patience := time.After(generous)
	for {
		select {
		case r := <-a.terms:
			if r.what == "broken" {
				a.t.Fatalf("a candidate: %s", r.why)
			}
			if r.what == "leads" {
				if r.term <= a.seen.term {
					a.t.Errorf("term %d after term %d", r.term, a.seen.term)
				}
				a.seen = r
			}
			if r.what == what {
				return r
			}
			a.skipIfStalled(ttl / 4) // it may have lost its term for that
			a.t.Fatalf("%+v, want one that %s", r, what)
		case <-patience:
			a.t.Fatalf("nobody %s", what)
		}
	}
}

// waiting waits until so many candidates stand in line.
func (a *candidates) awaitWaiters(n int64) {
	a.t.Helper()
	a.eventually("candidates wait", func() bool {
		have, _ := a.call("ZCARD", "{"+key+"}:dibs:queue").(int64)
		return have >= n
	})
}

// A leader that resigns is followed in a round trip: one way to the server, and one
// back to the next. What a message between the processes takes longer than a round trip
// to one that is wide awake is the machine's. Not parallel: it is about single ms.
func TestLeaderResigns(t *testing.T) {
	resigns := pick(20, 100)
	b := setUp(t)
	addr, roundTrip := b.delayedProxy()
	a := b.startCandidates(addr, 10*time.Second)
	leader := a.awaitReport("leads")
	for _, c := range a.members {
		c.send("listen")
		if r := a.awaitReport("listens"); r.why != "<nil>" {
			t.Fatalf("%+v", r)
		}
	}
	var successions, trips, messages []time.Duration
	for range resigns {
		a.awaitWaiters(1)
		to := a.members[rand.N(len(a.members))]
		for to == leader.of {
			to = a.members[rand.N(len(a.members))]
		}
		messages = append(messages, a.messageTime(leader.of, to)) // again and again: the machine changes
		trips = append(trips, roundTrip())
		leader.of.send("resign")
		end, next := a.awaitSuccession(leader)
		if end.of != leader.of || end.term != leader.term || end.why != "resigned" {
			t.Errorf("%+v led, but %+v ended", leader, end)
		}
		if next.at < end.at {
			t.Errorf("two leaders: term %d began %v before term %d ended", next.term, end.at-next.at, end.term)
		}
		successions = append(successions, next.at-end.at)
		leader = next
	}
	limit := median(trips) * 3 / 2
	control := max(median(messages)-median(trips), 0)
	have := median(successions)
	t.Logf("FIGURE %d resigns: succession median %v, longest %v; a round trip is %v (limit of the median 1.5 of it: %v), a message %v: control %v",
		len(successions), round(have), round(longest(successions)), round(median(trips)), round(limit), round(median(messages)), round(control))
	if have > limit+control {
		t.Errorf("succession after a resign takes %v, want at most %v (and %v for the busy machine)", have, limit, control)
	}
}

// A leader that is killed is followed when its term has expired.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	kills := pick(5, 100)
	b := setUp(t)
	a := b.startCandidates(b.server.Addr(), lease)
	leader := a.awaitReport("leads")
	var successions []time.Duration
	for range kills {
		a.awaitWaiters(1)
		work := time.NewTimer(rand.N(lease / 2)) // it may have renewed by then
		<-work.C
		b.begin()
		killed := mono()
		leader.of.kill()
		next := a.awaitReport("leads")
		took := next.at - killed
		if took < 0 {
			t.Errorf("two leaders: term %d began %v before the other one was killed", next.term, -took)
		}
		b.within("leader killed: succession", took, lease+100*time.Millisecond)
		successions = append(successions, took)
		leader = next
		a.add(lease)
	}
	t.Logf("FIGURE %d kills: succession median %v, longest %v", len(successions), round(median(successions)), round(longest(successions)))
}

// A leader that stands still is followed when its term has expired, and learns of that
// when it goes on.
func TestLeaderIsStopped(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	b := setUp(t)
	a := b.startCandidates(b.server.Addr(), lease)
	leader := a.awaitReport("leads")
	for range 2 {
		a.awaitWaiters(1)
		b.begin()
		stopped := mono()
		leader.of.stop()
		next := a.awaitReport("leads")
		b.within("leader stopped: succession", next.at-stopped, lease+100*time.Millisecond)
		b.begin()
		woken := mono()
		leader.of.cont()
		end := a.awaitReport("ends")
		b.within("leader stopped: told after it goes on", end.at-woken, 100*time.Millisecond)
		if end.of != leader.of || end.why != "lost" || end.term != leader.term {
			t.Errorf("%+v, want the loss of %+v", end, leader)
		}
		leader = next
	}
}

// A leader that is cut off is told before the next one begins.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	for _, cut := range []struct {
		name string
		off  func(*redistest.Proxy)
	}{{"freeze", (*redistest.Proxy).Freeze}, {"drop", (*redistest.Proxy).Drop}} {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			proxy := b.proxy()
			a := &candidates{fixture: b, addr: proxy.Addr(), terms: make(chan term, 1<<10)}
			a.add(lease)
			leader := a.awaitReport("leads")
			a.addr = b.server.Addr()
			a.add(lease)
			a.add(lease)
			a.awaitWaiters(2)
			b.begin()
			off := mono()
			cut.off(proxy)
			end, next := a.awaitSuccession(leader)
			b.within("leader cut off: told after", end.at-off, lease)
			b.within("leader cut off: succession", next.at-off, lease+100*time.Millisecond)
			t.Logf("FIGURE leader cut off: told %v before the next one begins (limit: before; control %v)", round(next.at-end.at), round(b.late()))
			if next.at < end.at-b.late() || end.why != "lost" {
				t.Errorf("%+v, and then %+v", end, next)
			}
		})
	}
}

// handOver waits for the end of a term and the begin of the next, whichever is
// reported first.
func (a *candidates) awaitSuccession(leader term) (end, next term) {
	a.t.Helper()
	patience := time.After(generous)
	for end.what == "" || next.what == "" {
		select {
		case r := <-a.terms:
			switch {
			case r.what == "ends" && r.of == leader.of && end.what == "":
				end = r
			case r.what == "leads" && r.term > leader.term && next.what == "":
				next = r
			default:
				a.t.Fatalf("%+v after %+v", r, leader)
			}
		case <-patience:
			a.t.Fatalf("%+v has no successor", leader)
		}
	}
	a.seen = next
	return end, next
}
