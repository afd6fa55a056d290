package pipeline

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// makeLate makes all exchanges in flight late.
func (r *fixture) makeLate() {
	r.mu.Lock()
	for _, b := range r.inFlight {
		b.lateAt = time.Now()
	}
	r.mu.Unlock()
	r.checkTimes()
}

// When its callers have left, an exchange keeps its worker until it is late. Then another
// exchange takes its place.
func TestPipelineReplacesLateWorkers(t *testing.T) {
	r := newFixture(t)
	engaged, hanging := r.occupyWorkers()
	waits := r.call(plain("waits"), time.Hour)
	engaged[0].leave(nil)
	engaged[0].wantErr(context.Canceled)
	r.nothingSent()
	r.makeLate()
	e := r.sent()
	wantCmds(t, e, "EVALSHA "+plain("").Cmd.Script.Hash+" 1 key waits")
	e.reply("done")
	waits.wantValue("done")
	hanging[0].reply("too late")
	for i := 1; i < maxWorkers; i++ {
		hanging[i].reply("done")
		engaged[i].wantValue("done")
	}
}

// Even if connections hang repeatedly, other requests should be served. After an exchange succeeds,
// several can be in progress again.
func TestPipelineSurvivesHangs(t *testing.T) {
	r := newFixture(t)
	var stuck []*exchange
	for range 5 {
		callers, hanging := r.occupyWorkers()
		waits := r.call(plain("waits"), time.Hour)
		r.nothingSent()
		r.makeLate()
		r.mu.Lock()
		r.policy.outage.crowdedUntil = time.Time{} // as if the pause had passed
		r.addWorker()
		r.mu.Unlock()
		for _, c := range callers {
			c.leave(nil)
			c.wantErr(context.Canceled)
		}
		r.sent().answer <- []redisconn.Reply{{Value: "done"}}
		waits.wantValue("done")
		stuck = append(stuck, hanging...)
		r.mu.Lock()
		r.policy.outage.withheld, r.policy.outage.distance = 0, time.Hour
		r.mu.Unlock()
	}
	for _, e := range stuck {
		e.reply("too late")
	}
	r.eventually("no exchange is late", func() bool { return r.policy.outage.late == 0 })
}

// A silent server gets few exchanges, however many callers come and leave: the workers' exchanges
// and a small probe.
func TestPipelineOnSilentServer(t *testing.T) {
	r := newFixture(t)
	r.policy.outage.distance = time.Millisecond
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 60 {
			var calls []*testCall
			for i := range 2 * probeBatch {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				c := &testCall{t, nil, make(chan redisconn.Reply, 1)}
				go func() {
					defer cancel()
					reply, _, _ := r.Do(ctx, plain(fmt.Sprint("in vain ", i)), time.Now().Add(time.Second))
					c.back <- reply
				}()
				calls = append(calls, c)
			}
			for _, c := range calls {
				c.reply()
			}
		}
	}()
	<-ended
	r.mu.Lock()
	n := len(r.inFlight)
	r.mu.Unlock()
	if n > maxExchanges {
		t.Errorf("%d exchanges in progress, want at most %d", n, maxExchanges)
	}
	waits := r.call(plain("waits"), time.Hour)
	for range n {
		e := r.sent()
		e.reply(slices.Repeat([]any{"late"}, len(e.cmds))...)
	}
	e := r.sent()
	e.reply(slices.Repeat([]any{"done"}, len(e.cmds))...)
	waits.wantValue("done")
}

// A reply is late after several round trips, so a long link is no outage.
func TestLateIsRelativeToTheRoundTrip(t *testing.T) {
	for _, c := range []struct{ roundTrip, want time.Duration }{
		{0, unknownLate},
		{100 * time.Microsecond, shortestLate},
		{10 * time.Millisecond, shortestLate},
		{800 * time.Millisecond, 4800 * time.Millisecond},
	} {
		var p policy
		if c.roundTrip > 0 {
			p.recordExchange(0, c.roundTrip, true)
		}
		p.recordExchange(1, 0, false) // it is still known
		if have := p.lateAfter(); have != c.want {
			t.Errorf("round trip %v: late after %v, want %v", c.roundTrip, have, c.want)
		}
	}
	var p policy
	p.recordExchange(0, time.Millisecond, true)
	p.congestion.limit = 1
	p.outage.recordReply(time.Second, false, served)
	if have := p.lateAfter(); have < 2*time.Second {
		t.Errorf("over a narrow link, on which exchanges take a second, late after %v", have)
	}
}

// After an outage, or while a server loads its data, a single worker begins. Each fast reply adds
// a worker; otherwise several replies in time do.
func TestOutageStartsWithOneWorker(t *testing.T) {
	const distance = 20 * time.Millisecond
	for what, begin := range map[string]func(o *outage, now time.Time){
		"a late reply":        func(o *outage, now time.Time) { o.recordLate(0, now) },
		"a failed connection": func(o *outage, now time.Time) { o.recordFailure(now) },
		"a refusal":           func(o *outage, _ time.Time) { o.recordReply(distance, false, refused) },
	} {
		o, now := newOutage(), time.Now()
		o.distance = distance
		if o.allowed() != maxWorkers {
			t.Fatalf("%d workers before any outage", o.allowed())
		}
		begin(&o, now)
		for range 3 {
			o.recordReply(10*distance, false, served)
			if o.allowed() != 1 {
				t.Errorf("%s: %d workers after slow replies, want 1", what, o.allowed())
			}
		}
		begin(&o, now)
		for n := range 2 * slowStart {
			if want := 1 + n/slowStart; o.allowed() != want {
				t.Errorf("%s: %d workers after %d replies in time, want %d", what, o.allowed(), n, want)
			}
			o.recordReply(10*distance, false, served)
		}
		begin(&o, now)
		o.recordReply(distance, false, refused)
		for range 2 * slowStart {
			o.recordReply(distance, false, notAsked)
		}
		if o.allowed() != 1 {
			t.Errorf("%s: %d workers while the server refuses script calls, want 1", what, o.allowed())
		}
		for n := 2; n <= maxWorkers+1; n++ {
			o.recordReply(distance, false, served)
			if want := min(n, maxWorkers); o.allowed() != want {
				t.Errorf("%s: %d workers after fast replies, want %d", what, o.allowed(), want)
			}
		}
	}
}

// While replies are late, the pauses between exchanges grow. Beside many hanging exchanges the
// pauses are long. A reply ends the pause.
func TestOutagePausesGrow(t *testing.T) {
	o, now := newOutage(), time.Now()
	first := time.Duration(0)
	for i := range 40 {
		o.late, o.lateAwaited = 0, 1
		o.recordLate(0, now)
		pause := o.resumesAt(0).Sub(now)
		if i == 0 {
			first = pause
		}
		if pause > 2*time.Second || i > 30 && pause < time.Second || first > 300*time.Millisecond {
			t.Errorf("pause %d: %v", i, pause)
		}
		now = now.Add(shortestLate + pause)
	}
	o.late, o.lateAwaited = maxExchanges-1, 1
	for i, want := range []time.Duration{crowdedPause, 2 * crowdedPause, 4 * crowdedPause} {
		o.recordLate(0, now)
		if pause := o.resumesAt(0).Sub(now); pause != want {
			t.Errorf("%d hang: a pause of %v, want %v", maxExchanges+i, pause, want)
		}
	}
	if o.recordReply(time.Second, true, served); !o.resumesAt(0).IsZero() {
		t.Error("paused after a reply")
	}
}

// After connections fail, exchanges pause, longer each time, with jitter.
func TestOutagePausesAfterFailedConnections(t *testing.T) {
	o, begin := newOutage(), time.Now()
	now, failures := begin, 0
	for ; now.Sub(begin) < time.Minute; failures++ {
		o.recordFailure(now)
		now = o.resumesAt(0)
	}
	if failures > 250 {
		t.Errorf("%d connections in a minute", failures)
	}
	o.recordReply(0, false, served)
	if o.recordFailure(now); o.resumesAt(0).Sub(now) > time.Millisecond {
		t.Errorf("a pause of %v after the first failure", o.resumesAt(0).Sub(now))
	}
}

// A Conn learns how long the callers in a batch wait: as long as the most patient caller.
func TestBatchWaitsAsLongAsItsCallers(t *testing.T) {
	r := newFixture(t)
	engaged, hanging := r.occupyWorkers()
	begin := time.Now()
	calls := []*testCall{r.call(plain("a"), 5*time.Second), r.call(plain("b"), 7*time.Second), r.call(plain("c"), 6*time.Second)}
	hanging[0].reply("done")
	engaged[0].wantValue("done")
	e := r.sent()
	if at, ok := e.ctx.Deadline(); !ok || at.Before(begin.Add(7*time.Second)) || at.After(time.Now().Add(7*time.Second)) {
		t.Errorf("the exchange has until %v, %t, after %v; want 7s", at.Sub(begin), ok, time.Since(begin))
	}
	e.reply("a", "b", "c")
	for i, c := range calls {
		c.wantValue(string(rune('a' + i)))
	}
	for i := range hanging[1:] {
		hanging[i+1].reply("done")
		engaged[i+1].wantValue("done")
	}
}

// The calling goroutine should send a renewal itself, if the Conn returns in time. If the reply is
// late, another exchange takes the worker's place, as always.
func TestPipelineSendsRenewalsAlone(t *testing.T) {
	for _, prompt := range []bool{false, true} {
		r := newFixture(t)
		r.policy.prompt = prompt
		renewal := plain("renewal")
		renewal.Extends = true
		renews := r.call(renewal, time.Hour)
		e := r.sent()
		r.mu.Lock()
		alone := renewal.alone
		r.mu.Unlock()
		if alone != prompt {
			t.Errorf("prompt: %v, sent alone: %v", prompt, alone)
		}
		r.makeLate()
		r.eventually("its place is free", func() bool { return r.policy.workers == 0 })
		e.reply("late")
		renews.wantValue("late")
	}
}
