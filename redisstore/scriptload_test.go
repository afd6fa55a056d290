package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var errUnknownScript = ServerError("NOSCRIPT No matching script. Please use EVAL.")

// While one request teaches the server a script, the others that wait for the same server
// do not send it as well, in its batch or beside it.
func TestScriptsAreTaughtOnce(t *testing.T) {
	const eval, byHash = "EVAL ", "EVALSHA "
	whole, short := eval+releaseScript.text+" 1 key ", byHash+releaseScript.sha+" 1 key "
	for _, outcome := range []any{"taught", errors.New("reset")} {
		r := newRig(t)
		first := r.call(plain("first"), time.Hour)
		e := r.sent()
		e.reply(errUnknownScript)
		lesson := r.sent()
		wantCmds(t, lesson, whole+"first")

		engaged := []*caller{r.call(plain("a"), time.Hour), r.call(claimOn("n", "b"), time.Hour)}
		for range engaged {
			e := r.sent()
			e.reply(errUnknownScript)
			if strings.HasPrefix(e.cmds[0][1], acquireScript.sha) { // another one, which is not being taught
				other := r.sent()
				wantCmds(t, other, eval+acquireScript.text+" 2 n n:q check b ttl until place")
				other.reply(now)
				engaged[1].wantValue(now)
			}
		}
		r.nothingSent()
		lesson.reply(outcome)
		if err, failed := outcome.(error); failed {
			first.wantErr(err)
			e := r.sent()
			wantCmds(t, e, short+"a")
			e.reply(errUnknownScript)
			e = r.sent()
			wantCmds(t, e, whole+"a")
			e.reply("taught")
		} else {
			first.wantValue("taught")
			e := r.sent()
			wantCmds(t, e, short+"a")
			e.reply("taught")
		}
		engaged[0].wantValue("taught")
		r.nothingSent()
	}

	r := newRig(t)
	busy, hanging := r.engage()
	callers := []*caller{r.call(plain("a"), time.Hour), r.call(plain("b"), time.Hour), r.call(plain("c"), time.Hour)}
	hanging[0].reply("done")
	e := r.sent()
	e.reply(errUnknownScript, "b", errUnknownScript)
	e = r.sent()
	wantCmds(t, e, whole+"a", short+"c")
	e.reply("a", "c")
	for i, want := range []string{"a", "b", "c"} {
		callers[i].wantValue(want)
	}
	for i := range busy {
		if i > 0 {
			hanging[i].reply("done")
		}
		busy[i].wantValue("done")
	}
}

// A call may overtake the one with the text of its script, where each goes over a
// connection of its own.
func TestScriptIsOvertaken(t *testing.T) {
	r := newRig(t)
	busy, hanging := r.engage()
	callers := []*caller{r.call(plain("a"), time.Hour), r.call(plain("b"), time.Hour)}
	hanging[0].reply("done")
	e := r.sent()
	e.reply(errUnknownScript, errUnknownScript)
	e = r.sent()
	e.reply("a", errUnknownScript)
	e = r.sent()
	wantCmds(t, e, "EVAL "+releaseScript.text+" 1 key b")
	e.reply("b")
	for i, want := range []string{"a", "b"} {
		callers[i].wantValue(want)
	}
	for i := range busy {
		if i > 0 {
			hanging[i].reply("done")
		}
		busy[i].wantValue("done")
	}
}

// What is sent whole has no comments: they are most of it.
func TestScriptsAreBare(t *testing.T) {
	for _, s := range []*script{acquireScript, voteScript, releaseScript, extendScript, inspectScript, acquireAllScript, coalescedScript, resizeScript, revokeScript} {
		for line := range strings.Lines(s.text) {
			if strings.HasPrefix(line, "--") || strings.HasPrefix(line, " ") || line == "\n" {
				t.Fatalf("it is sent with %q", line)
			}
		}
	}
}
