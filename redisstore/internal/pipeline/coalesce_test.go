package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Requests for coalesced calls.

func keysOf(name string) []string {
	return []string{name, name + ":q", name + ":s", name + ":f", name + ":h"}
}

func uncontendedAcquire(name string) *Request {
	r := newRequest(wire.Plain().Acquire, keysOf(name), "check", "token", "ttl", "until", "", "")
	r.MergeKey, r.MergeFrom, r.Until, r.Joins, r.Token, r.TTL = name, 1, 3, wire.JoinsAcquire, "token", "ttl"
	return r
}

func uncontendedRelease(name string) *Request {
	r := newRequest(wire.Plain().Release, keysOf(name), "token", "fence", "until", "0", "check", "")
	r.Until, r.Joins, r.Token = 2, wire.JoinsRelease, "token"
	return r
}

// coalesce queues requests while the workers are busy. It returns their callers and the batch that
// is sent.
func (r *fixture) coalesce(requests ...*Request) (callers []*testCall, sent *exchange) {
	r.t.Helper()
	engaged, hanging := r.occupyWorkers()
	for _, req := range requests {
		callers = append(callers, r.call(req, time.Hour))
	}
	r.nothingSent()
	for i := range hanging {
		hanging[i].reply("done")
		engaged[i].wantValue("done")
		if i == 0 {
			sent = r.sent()
		}
	}
	return callers, sent
}

func coalescedCall(keys, args string) string {
	return fmt.Sprintf("EVALSHA %s %d %s %s", wire.Plain().Coalesced.Hash, len(strings.Fields(keys)), keys, args)
}

// Uncontended requests should become a single call, with the others beside it. A request left
// unchanged by the call is sent again alone.
func TestUncontendedRequestsAreCoalesced(t *testing.T) {
	r := newFixture(t)
	r.clock.Learn(time.Now(), time.Now(), now)
	callers, e := r.coalesce(uncontendedAcquire("a"), plain("p"), uncontendedRelease("b"), uncontendedAcquire("c"))
	const keys = "b b:q b:s a a:q a:s a:f c c:q c:s c:f" // the release first
	until := e.cmds[1][3+len(strings.Fields(keys))]
	wantCmds(t, e,
		"EVALSHA "+wire.Plain().Release.Hash+" 1 key p",
		coalescedCall(keys, until+" raa ttl token   "),
	)
	e.reply(int64(1), []any{now, "110"})
	single := r.sent()
	wantScript(t, single, "EVALSHA "+wire.Plain().Acquire.Hash+" 5 c c:q c:s c:f c:h check token ttl ", []any{now, "7"})
	callers[0].wantValue(now)
	callers[1].wantValue(1)
	callers[2].wantValue(1)
	callers[3].wantValue([]any{now, "7"})
	if r.clock.Latest(time.Now()) < now {
		t.Error("the clock has no bounds")
	}
}

// If the server refuses the call, for example because a name is bad, each request is sent alone.
// If the connection fails, all outcomes are unknown.
func TestCoalescedCallIsRefused(t *testing.T) {
	r := newFixture(t)
	callers, e := r.coalesce(uncontendedAcquire("a"), uncontendedRelease("b"))
	e.reply(redisconn.ServerError("NOPERM no key b"))
	e = r.sent()
	if len(e.cmds) != 2 {
		t.Fatalf("sent %q, want each alone", e.cmds)
	}
	e.reply(redisconn.ServerError("NOPERM no key b"), now)
	callers[0].wantValue(now)
	callers[1].wantErr(redisconn.ServerError("NOPERM no key b"))

	callers, e = newFixture(t).coalesce(uncontendedAcquire("a"), uncontendedRelease("b"))
	e.reply(errors.New("reset"))
	for _, c := range callers {
		if reply := c.reply(); reply.Err == nil || reply.Err.Error() != "reset" {
			t.Errorf("reply %v, want reset", reply)
		}
	}
}

// After a mostly contended batch, the next batches are not coalesced.
func TestCoalescingPausesUnderContention(t *testing.T) {
	r := newFixture(t)
	r.clock.Learn(time.Now(), time.Now(), now)
	_, e := r.coalesce(uncontendedAcquire("a"), uncontendedAcquire("b"))
	e.reply([]any{now, "00"})
	r.sent().reply([]any{now, "7"}, []any{now, "8"})
	callers, e := r.coalesce(uncontendedAcquire("a"), uncontendedAcquire("b"))
	if len(e.cmds) != 2 {
		t.Errorf("sent %q, want each alone", e.cmds)
	}
	e.reply([]any{now, "7"}, []any{now, "8"})
	callers[0].wantValue([]any{now, "7"})
	callers[1].wantValue([]any{now, "8"})
}

// A reply with the wrong length grants nothing.
func TestCoalescedReplyOfWrongLength(t *testing.T) {
	for _, reply := range []any{nil, now, "11", []any{}, []any{now}, []any{now, "1"}, []any{now, "111"}, []any{now, int64(11)}, []any{"now", "11"}, []any{now, "11", "1"}} {
		callers, e := newFixture(t).coalesce(uncontendedAcquire("a"), uncontendedAcquire("b"))
		e.reply(reply)
		for _, c := range callers {
			if have := c.reply(); have.Err == nil {
				t.Errorf("of %v one got %v", reply, have.Value)
			}
		}
	}
}

// A slow server without the scripts should first get the small script for coalesced calls. The next
// request uses it at once, until a contended request needs the large script.
func TestUnknownScriptIsReplacedByTheSmallOne(t *testing.T) {
	r := newFixture(t)
	a := uncontendedAcquire("a")
	first := r.call(a, time.Hour)
	late := func(e *exchange, reply any) {
		time.Sleep(2 * slowReply)
		e.reply(reply)
	}
	late(r.sent(), errUnknownScript)
	e := r.sent()
	wantCmds(t, e, coalescedCall("a a:q a:s a:f", "0 a ttl  token"))
	late(e, errUnknownScript)
	e = r.sent()
	wantCmds(t, e, strings.Replace(coalescedCall("a a:q a:s a:f", "0 a ttl  token"), "EVALSHA "+wire.Plain().Coalesced.Hash, "EVAL "+wire.Plain().Coalesced.Text, 1))
	late(e, []any{now, "1"})
	first.wantValue(now)

	second := r.call(uncontendedAcquire("b"), time.Hour)
	wantScript(t, r.sent(), "EVALSHA "+wire.Plain().Coalesced.Hash, []any{now, "0"})
	wantScript(t, r.sent(), "EVALSHA "+wire.Plain().Acquire.Hash, errUnknownScript)
	wantScript(t, r.sent(), "EVAL "+wire.Plain().Acquire.Text, []any{now, "7"})
	second.wantValue([]any{now, "7"})
}

// wantScript checks which script is called, and replies.
func wantScript(t *testing.T, e *exchange, call string, reply any) {
	t.Helper()
	if len(e.cmds) != 1 || !strings.HasPrefix(strings.Join(e.cmds[0], " "), call) {
		t.Errorf("sent %.100q, want %.100q", e.cmds, call)
	}
	e.reply(reply)
}

// A request that came too late should not be sent again: its caller gets the server's time.
func TestLateRequestIsNotSentAlone(t *testing.T) {
	r := newFixture(t)
	callers, e := r.coalesce(uncontendedAcquire("a"), uncontendedRelease("b"))
	e.reply([]any{now, "00"}) // until is 0: the clock is not known
	callers[0].wantValue([]any{now, int64(0)})
	callers[1].wantValue(now)
	r.nothingSent()
}

// If a coalesced call is too late for a single request, the others are coalesced again, once.
// Lateness is not contention, so the next batches are coalesced as well.
func TestLateCallIsCoalescedAgain(t *testing.T) {
	r := newFixture(t)
	r.clock.Learn(time.Now(), time.Now(), now)
	engaged, hanging := r.occupyWorkers()
	late := r.call(uncontendedAcquire("a"), time.Minute)
	others := []*testCall{r.call(uncontendedAcquire("b"), time.Hour), r.call(uncontendedRelease("c"), time.Hour)}
	hanging[0].reply("done")
	e := r.sent()
	afterAMinute := now + (2 * time.Minute).Microseconds()
	e.reply([]any{afterAMinute, "000"})
	again := r.sent()
	const keys = "c c:q c:s b b:q b:s b:f"
	until := again.cmds[0][3+len(strings.Fields(keys))]
	wantCmds(t, again, coalescedCall(keys, until+" ra ttl token  "))
	again.reply([]any{afterAMinute, "11"})
	late.wantValue([]any{afterAMinute, int64(0)})
	others[0].wantValue(afterAMinute)
	others[1].wantValue(1)
	for i := 1; i < len(hanging); i++ {
		hanging[i].reply("done")
	}
	for _, c := range engaged {
		c.wantValue("done")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.policy.mayCoalesce(2) {
		t.Error("the next requests are not coalesced")
	}
}
