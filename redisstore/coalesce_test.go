package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// These requests go together.

func usualClaim(name string) *request {
	r := newRequest(acquireScript, &slotState{pipeliner: new(pipeliner)}, name, name+":q", name+":s", name+":f", name+":h")
	r.args("check", "token", "ttl", "until", "", "")
	r.coalescable, r.mergeKey, r.argsStart = true, name, 9
	return r
}

func usualRelease(name string) *request {
	r := newRequest(releaseScript, &slotState{pipeliner: new(pipeliner)}, name, name+":q", name+":s", name+":f", name+":h")
	r.args("token", "fence", "until", "0", "check", "")
	r.coalescable = true
	return r
}

// together lets some requests gather, and returns their callers and what is sent.
func (r *rig) together(requests ...*request) (callers []*caller, sent *exchange) {
	r.t.Helper()
	engaged, hanging := r.engage()
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

const manyKeys = "%[1]s %[1]s:q %[1]s:s %[1]s:f"

func many(names, args string) string {
	var keys []string
	for name := range strings.FieldsSeq(names) {
		keys = append(keys, fmt.Sprintf(manyKeys, name))
	}
	return fmt.Sprintf("EVALSHA %s %d %s %s", coalescedScript.sha, 4*len(keys), strings.Join(keys, " "), args)
}

// What is usual goes as one call, and what is not, beside it. Who was left out by the
// call asks by himself.
func TestUsualGoTogether(t *testing.T) {
	r := newRig(t)
	callers, e := r.together(usualClaim("a"), plain("p"), usualRelease("b"), usualClaim("c"))
	wantCmds(t, e,
		"EVALSHA "+releaseScript.sha+" 1 key p",
		many("a b c", "token ttl until token 0 until token ttl until"),
	)
	e.reply(int64(1), []any{now, "110"})
	alone := r.sent()
	wantCmds(t, alone, "EVALSHA "+acquireScript.sha+" 5 c c:q c:s c:f c:h check token ttl until  ")
	alone.reply([]any{now, "7"})
	callers[0].wantValue(now)
	callers[1].wantValue(1)
	callers[2].wantValue(1)
	callers[3].wantValue([]any{now, "7"})
	if r.clock.latest(time.Now()) < now {
		t.Error("the clock has not learnt")
	}
}

// A server that refuses the call, because of one of the names, say, is asked for each by
// itself. A connection that fails leaves all unknown.
func TestTogetherTheyAreRefused(t *testing.T) {
	r := newRig(t)
	callers, e := r.together(usualClaim("a"), usualRelease("b"))
	e.reply(ServerError("NOPERM no key b"))
	e = r.sent()
	if len(e.cmds) != 2 {
		t.Fatalf("sent %q, want each by itself", e.cmds)
	}
	e.reply(now, ServerError("NOPERM no key b"))
	callers[0].wantValue(now)
	callers[1].wantErr(ServerError("NOPERM no key b"))

	callers, e = newRig(t).together(usualClaim("a"), usualRelease("b"))
	e.reply(errors.New("reset"))
	for _, c := range callers {
		if reply := c.reply(); reply.Err == nil || reply.Err.Error() != "reset" {
			t.Errorf("reply %v, want reset", reply)
		}
	}
}

// Where most turn out to be taken, the next batches go by themselves.
func TestTogetherIsGivenUp(t *testing.T) {
	r := newRig(t)
	_, e := r.together(usualClaim("a"), usualClaim("b"))
	e.reply([]any{now, "00"})
	r.sent().reply([]any{now, "7"}, []any{now, "8"})
	callers, e := r.together(usualClaim("a"), usualClaim("b"))
	if len(e.cmds) != 2 {
		t.Errorf("sent %q, want each by itself", e.cmds)
	}
	e.reply([]any{now, "7"}, []any{now, "8"})
	callers[0].wantValue([]any{now, "7"})
	callers[1].wantValue([]any{now, "8"})
}

// A reply that was not made for so many grants nothing.
func TestTogetherRepliesAreDoubted(t *testing.T) {
	for _, reply := range []any{nil, now, "11", []any{}, []any{now}, []any{now, "1"}, []any{now, "111"}, []any{now, int64(11)}, []any{"now", "11"}, []any{now, "11", "1"}} {
		callers, e := newRig(t).together(usualClaim("a"), usualClaim("b"))
		e.reply(reply)
		for _, c := range callers {
			if have := c.reply(); have.Err == nil {
				t.Errorf("of %v one got %v", reply, have.Value)
			}
		}
	}
}
