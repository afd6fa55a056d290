package pipeline

import (
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

var errUnknownScript = redisconn.ServerError("NOSCRIPT No matching script. Please use EVAL.")

// While a request loads a script, other requests for the same server must not send it, in the
// same batch or beside it.
func TestScriptsAreLoadedOnce(t *testing.T) {
	const eval, byHash = "EVAL ", "EVALSHA "
	whole, short := eval+wire.Plain().Release.Text+" 1 key ", byHash+wire.Plain().Release.Hash+" 1 key "
	for _, outcome := range []any{"loaded", errors.New("reset")} {
		r := newFixture(t)
		first := r.call(plain("first"), time.Hour)
		e := r.sent()
		e.reply(errUnknownScript)
		load := r.sent()
		wantCmds(t, load, whole+"first")

		// Sequentially: two concurrent calls may share a batch.
		second := r.call(plain("a"), time.Hour)
		e = r.sent()
		e.reply(errUnknownScript)
		third := r.call(acquireOf("n", "b"), time.Hour)
		e = r.sent()
		e.reply(errUnknownScript)
		other := r.sent() // another script, which is not being loaded
		wantCmds(t, other, eval+wire.Plain().Acquire.Text+" 2 n n:q check b ttl until entry")
		other.reply(now)
		third.wantValue(now)
		r.nothingSent()
		load.reply(outcome)
		if err, failed := outcome.(error); failed {
			first.wantErr(err)
			e := r.sent()
			wantCmds(t, e, short+"a")
			e.reply(errUnknownScript)
			e = r.sent()
			wantCmds(t, e, whole+"a")
			e.reply("loaded")
		} else {
			first.wantValue("loaded")
			e := r.sent()
			wantCmds(t, e, short+"a")
			e.reply("loaded")
		}
		second.wantValue("loaded")
		r.nothingSent()
	}

	r := newFixture(t)
	busy, hanging := r.occupyWorkers()
	callers := []*testCall{r.call(plain("a"), time.Hour), r.call(plain("b"), time.Hour), r.call(plain("c"), time.Hour)}
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

// A call can overtake the call with the text of its script, if each uses its own connection.
func TestCallOvertakesScriptLoad(t *testing.T) {
	r := newFixture(t)
	busy, hanging := r.occupyWorkers()
	callers := []*testCall{r.call(plain("a"), time.Hour), r.call(plain("b"), time.Hour)}
	hanging[0].reply("done")
	e := r.sent()
	e.reply(errUnknownScript, errUnknownScript)
	e = r.sent()
	e.reply("a", errUnknownScript)
	e = r.sent()
	wantCmds(t, e, "EVAL "+wire.Plain().Release.Text+" 1 key b")
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
