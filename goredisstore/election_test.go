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
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// candidateChild campaigns for the job until it is killed. It executes "resign",
// "subscribe" and "publish NAME". It reports "leads TIME TERM" and "ends TIME TERM
// REASON" when its term begins and ends. It reports "subscribed TIME 0 ERR", "received
// TIME 0 ERR" and "published TIME 0 ERR" for messages between candidates, which use no
// lock.
func candidateChild(o childConfig, commands <-chan string) {
	locks := openInChild(o, dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) { emit("renewed %d", mono()) }})
	election := locks.Election(job)
	emit("ready")
	go func() {
		err := election.Run(context.Background(), func(ctx context.Context) error {
			at, term := mono(), carried.Fence(ctx) // after a loss the context has no fence
			emit("leads %d %d", at, term)
			<-ctx.Done()
			reason := "lost"
			if errors.Is(context.Cause(ctx), dibs.ErrResigned) {
				reason = "resigned"
			}
			at = mono()
			go emit("ends %d %d %s", at, term, reason) // in the background, so as not to delay the release
			return ctx.Err()
		})
		emit("broken %v", err)
	}()
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr})
	for command := range commands {
		verb, to, _ := strings.Cut(command, " ")
		switch verb {
		case "resign":
			election.Resign()
		case "subscribe":
			sub := rdb.Subscribe(context.Background(), "message:"+o.Name)
			_, err := sub.Receive(context.Background())
			emit("subscribed %d 0 %v", mono(), err)
			go func() {
				for {
					_, err := sub.ReceiveMessage(context.Background())
					emit("received %d 0 %v", mono(), err)
				}
			}()
		case "publish":
			at := mono()
			err := rdb.Publish(context.Background(), "message:"+to, "").Err()
			emit("published %d 0 %v", at, err)
		}
	}
}

// term is a candidate's report.
type term struct {
	of     *child
	what   string // leads, ends, broken; subscribed, published, received
	at     time.Duration
	term   uint64
	reason string // for ends and broken; for messages the error
}

// messageTime returns how long a message between two candidates takes.
func (a *candidates) messageTime(from, to *child) time.Duration {
	a.t.Helper()
	from.send("publish " + to.name)
	var published, received term
	for patience := time.After(generous); published.of == nil || received.of == nil; {
		select {
		case r := <-a.terms:
			switch {
			case r.what == "published" && r.of == from && r.reason == "<nil>":
				published = r
			case r.what == "received" && r.of == to && r.reason == "<nil>":
				received = r
			default:
				a.t.Fatalf("%+v, want a report of the message", r)
			}
		case <-patience:
			a.t.Fatal("timed out waiting for a message")
		}
	}
	return received.at - published.at
}

// candidates is several candidate processes and their reports.
type candidates struct {
	*fixture
	addr    string
	members []*child
	terms   chan term
	latest  term // the leader's latest term
}

func (b *fixture) startCandidates(addr string, lease time.Duration) *candidates {
	b.t.Helper()
	a := &candidates{fixture: b, addr: addr, terms: make(chan term, 1<<10)}
	for range 5 {
		a.add(lease)
	}
	return a
}

// add starts a candidate.
func (a *candidates) add(lease time.Duration) {
	a.t.Helper()
	id := fmt.Sprint(len(a.members))
	c := a.spawn(childConfig{Role: "candidate", Addr: a.addr, TTL: lease, Name: id})
	c.name = id
	a.members = append(a.members, c)
	go func() {
		for line := range c.lines {
			f := strings.Fields(line)
			r := term{of: c, what: f[0]}
			switch f[0] {
			case "leads", "ends", "subscribed", "published", "received":
				r.at, r.term = number(a.t, f[1]), uint64(number(a.t, f[2]))
				r.reason = strings.Join(f[3:], " ")
			case "broken":
				r.reason = line
			default:
				continue
			}
			a.terms <- r
		}
	}()
}

// awaitReport returns the next report and checks its kind. Each new term must have a larger number
// than earlier terms.
func (a *candidates) awaitReport(what string) term {
	a.t.Helper()
	patience := time.After(generous)
	for {
		select {
		case r := <-a.terms:
			if r.what == "broken" {
				a.t.Fatalf("a candidate: %s", r.reason)
			}
			if r.what == "leads" {
				if r.term <= a.latest.term {
					a.t.Errorf("term %d after term %d", r.term, a.latest.term)
				}
				a.latest = r
			}
			if r.what == what {
				return r
			}
			a.skipIfStalled(ttl / 4) // otherwise a stall may have ended its term
			a.t.Fatalf("report %+v, want %q", r, what)
		case <-patience:
			a.t.Fatalf("timed out waiting for the report %q", what)
		}
	}
}

// awaitWaiters waits until at least n candidates are in the wait queue.
func (a *candidates) awaitWaiters(n int64) {
	a.t.Helper()
	a.eventually("candidates wait", func() bool {
		have, _ := a.call("ZCARD", "{"+key+"}:dibs:queue").(int64)
		return have >= n
	})
}

// The succession after a leader's resignation takes one round trip: one way to the server, and
// one way from it to the next leader. If a message between the processes takes longer than a
// round trip, the machine caused the rest. Not parallel, because single ms matter.
func TestLeaderResigns(t *testing.T) {
	resigns := pick(20, 100)
	b := setUp(t)
	addr, roundTrip := b.delayedProxy()
	a := b.startCandidates(addr, 10*time.Second)
	leader := a.awaitReport("leads")
	for _, c := range a.members {
		c.send("subscribe")
		if r := a.awaitReport("subscribed"); r.reason != "<nil>" {
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
		messages = append(messages, a.messageTime(leader.of, to)) // measured each time, because the machine's load changes
		trips = append(trips, roundTrip())
		leader.of.send("resign")
		end, next := a.awaitSuccession(leader)
		if end.of != leader.of || end.term != leader.term || end.reason != "resigned" {
			t.Errorf("%+v led, and %+v ended", leader, end)
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

// After a leader is killed, the next term begins when the lease expires.
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
		work := time.NewTimer(rand.N(lease / 2)) // the leader may or may not have renewed
		<-work.C
		b.begin()
		killed := mono()
		leader.of.kill()
		next := a.awaitReport("leads")
		took := next.at - killed
		if took < 0 {
			t.Errorf("term %d began %v before the previous leader was killed", next.term, -took)
		}
		b.within("leader killed: succession", took, lease+100*time.Millisecond)
		successions = append(successions, took)
		leader = next
		a.add(lease)
	}
	t.Logf("FIGURE %d kills: succession median %v, longest %v", len(successions), round(median(successions)), round(longest(successions)))
}

// After a leader is stopped, the next term begins when the lease expires. The stopped leader is
// notified when it continues.
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
		b.within("leader stopped: notified after it continues", end.at-woken, 100*time.Millisecond)
		if end.of != leader.of || end.reason != "lost" || end.term != leader.term {
			t.Errorf("%+v, want the loss of %+v", end, leader)
		}
		leader = next
	}
}

// A leader behind a cut connection is notified before the next term begins.
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
			b.within("leader cut off: notified after", end.at-off, lease)
			b.within("leader cut off: succession", next.at-off, lease+100*time.Millisecond)
			t.Logf("FIGURE leader cut off: notified %v before the next term begins (limit: before; control %v)", round(next.at-end.at), round(b.late()))
			if next.at < end.at-b.late() || end.reason != "lost" {
				t.Errorf("%+v, and then %+v", end, next)
			}
		})
	}
}

// awaitSuccession waits for a term's end and the next term's start, whichever report comes first.
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
	a.latest = next
	return end, next
}
