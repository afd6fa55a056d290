package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/serverclock"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// now is a server's time in µs.
const now int64 = 1_700_000_000_000_000

// These tests run in real time: the pipeline keeps requests and their channels in package-level
// pools, and pooled channels must not enter a synctest bubble.

const (
	generous = 10 * time.Second
	slow     = 15 * time.Millisecond // callers use a worker if the server takes this long
)

// An exchange is a single Do on a fakeConn, in flight until it is answered.
type exchange struct {
	ctx    context.Context
	cmds   [][]string // as they were when they were sent
	answer chan []redisconn.Reply
}

// A fakeConn blocks until the test answers or, if it is prompt, until the caller's time is
// over.
type fakeConn struct {
	redisconn.Conn
	prompt    bool
	exchanges chan *exchange
}

func (c *fakeConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	var ended <-chan struct{}
	timed := ctx
	if c.prompt && !until.IsZero() {
		var cancel context.CancelFunc
		timed, cancel = context.WithDeadline(ctx, until)
		defer cancel()
		ended = timed.Done()
	}
	e := &exchange{ctx: ctx, answer: make(chan []redisconn.Reply)}
	for _, cmd := range cmds {
		e.cmds = append(e.cmds, cmd.Words())
	}
	c.exchanges <- e
	select {
	case answer := <-e.answer:
		copy(replies, answer)
	case <-ended:
		for i := range replies {
			replies[i].Err = timed.Err()
		}
	}
	for i, cmd := range cmds {
		if !slices.Equal(cmd.Words(), e.cmds[i]) {
			panic(fmt.Sprintf("%q has become %q while it was under way", e.cmds[i], cmd.Words()))
		}
	}
}

// A fixture is a pipeline on a fakeConn.
type fixture struct {
	t *testing.T
	*Pipeline
	fake *fakeConn
}

func newFixture(t *testing.T) *fixture {
	c := &fakeConn{exchanges: make(chan *exchange, 1000)}
	r := &fixture{t, newPipeline(c, serverclock.New()), c}
	r.policy.outage.distance = time.Hour // until the first reply: no exchange is late
	t.Cleanup(func() {
		r.eventually("the workers end", func() bool { return r.policy.workers == 0 })
	})
	return r
}

// eventually waits until the pipeline reaches a state.
func (r *fixture) eventually(what string, is func() bool) {
	r.t.Helper()
	end := time.Now().Add(generous)
	for {
		r.mu.Lock()
		ok, workers, queue := is(), r.policy.workers, len(r.queue)
		r.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("not after %v: %s; %d workers, %d queued", generous, what, workers, queue)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// sent returns the next exchange.
func (r *fixture) sent() *exchange {
	r.t.Helper()
	select {
	case e := <-r.fake.exchanges:
		return e
	case <-time.After(generous):
		r.t.Fatal("nothing is sent")
		return nil
	}
}

func (r *fixture) nothingSent() {
	r.t.Helper()
	select {
	case e := <-r.fake.exchanges:
		r.t.Fatalf("sent: %q", e.cmds)
	default:
	}
}

func (e *exchange) reply(values ...any) {
	replies := make([]redisconn.Reply, len(values))
	for i, v := range values {
		if err, ok := v.(error); ok {
			replies[i].Err = err
		} else {
			replies[i].Value = v
		}
	}
	time.Sleep(slow)
	e.answer <- replies
}

// callerKey is the context key that identifies a caller.
type callerKey struct{}

// A testCall is a call to Do.
type testCall struct {
	t     *testing.T
	leave context.CancelCauseFunc
	back  chan redisconn.Reply
}

// call sends a request in the background, and returns once it is queued or in flight.
func (r *fixture) call(req *Request, until time.Duration) *testCall {
	r.t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithValue(r.t.Context(), callerKey{}, req))
	c := &testCall{r.t, cancel, make(chan redisconn.Reply, 1)}
	sent := len(r.fake.exchanges)
	go func() {
		defer cancel(nil)
		reply, _, _ := r.Do(ctx, req, time.Now().Add(until))
		c.back <- reply
	}()
	r.eventually("the request is queued or sent", func() bool {
		return slices.Contains(r.queue, req) || req.sent || req.abandoned || len(r.fake.exchanges) > sent
	})
	return c
}

func (c *testCall) reply() redisconn.Reply {
	c.t.Helper()
	select {
	case reply := <-c.back:
		return reply
	case <-time.After(generous):
		c.t.Fatal("the caller hangs")
		return redisconn.Reply{}
	}
}

func (c *testCall) wantValue(want any) {
	c.t.Helper()
	if have := c.reply(); have.Err != nil || fmt.Sprint(have.Value) != fmt.Sprint(want) {
		c.t.Errorf("reply %v, %v; want %v", have.Value, have.Err, want)
	}
}

func (c *testCall) wantErr(want error) {
	c.t.Helper()
	if have := c.reply(); !errors.Is(have.Err, want) {
		c.t.Errorf("reply %v, %v; want %v", have.Value, have.Err, want)
	}
}

func newRequest(script *redisconn.Script, keys []string, args ...string) *Request {
	r := new(RequestPool).Get()
	r.Cmd = redisconn.Cmd{Script: script, Keys: keys, Args: args}
	return r
}

// plain returns a request that cannot be merged.
func plain(arg string) *Request { return newRequest(wire.Plain().Release, []string{"key"}, arg) }

// acquireOf returns a request that can be merged with others for the same name.
func acquireOf(name, token string) *Request {
	r := newRequest(wire.Plain().Acquire, []string{name, name + ":q"}, "check", token, "ttl", "until", "entry")
	r.MergeKey, r.MergeFrom = name, 1
	return r
}

// occupyWorkers gives each worker an exchange that hangs.
func (r *fixture) occupyWorkers() (callers []*testCall, hanging []*exchange) {
	r.t.Helper()
	for i := range maxWorkers {
		callers = append(callers, r.call(plain(fmt.Sprint("engaged ", i)), time.Hour))
		hanging = append(hanging, r.sent())
	}
	return callers, hanging
}

func wantCmds(t *testing.T, e *exchange, want ...string) {
	t.Helper()
	have := make([]string, len(e.cmds))
	for i, cmd := range e.cmds {
		have[i] = strings.Join(cmd, " ")
	}
	if !slices.Equal(have, want) {
		t.Errorf("sent %q, want %q", have, want)
	}
}

func TestPipelineSendsAtOnce(t *testing.T) {
	r := newFixture(t)
	for i := range 3 {
		c := r.call(acquireOf("n", "a"), time.Hour)
		e := r.sent()
		wantCmds(t, e, "EVALSHA "+wire.Plain().Acquire.Hash+" 2 n n:q check a ttl until entry")
		e.reply(now + int64(i))
		c.wantValue(now + int64(i))
		if i == 0 && r.clock.Latest(time.Now()) < now {
			t.Error("the clock has no bounds")
		}
	}
}

// Requests queued while the workers are busy should be sent together. Requests on the same name
// become a single call, in order of arrival.
func TestPipelineMerges(t *testing.T) {
	r := newFixture(t)
	engaged, hanging := r.occupyWorkers()
	requests := []*Request{acquireOf("a", "a1"), acquireOf("b", "b1"), plain("p1"), acquireOf("a", "a2")}
	if len(requests) > minBatch {
		t.Fatal("these may be sent in two batches")
	}
	callers := make([]*testCall, len(requests))
	for i, req := range requests {
		callers[i] = r.call(req, time.Hour)
	}
	r.nothingSent()
	hanging[0].reply("done")
	engaged[0].wantValue("done")

	e := r.sent()
	eval, release := "EVALSHA "+wire.Plain().Acquire.Hash+" 2 ", "EVALSHA "+wire.Plain().Release.Hash+" 1 key "
	wantCmds(t, e,
		eval+"a a:q check a1 ttl until entry a2 ttl until entry",
		eval+"b b:q check b1 ttl until entry",
		release+"p1",
	)
	waitAnswer := []any{"5", int64(1), int64(2), "a1"}
	e.reply(
		[]any{now, "7", waitAnswer},
		redisconn.ServerError("WRONGTYPE b"),
		int64(1),
	)
	callers[0].wantValue([]any{now, "7"})
	callers[3].wantValue([]any{now, waitAnswer})
	callers[1].wantErr(redisconn.ServerError("WRONGTYPE b"))
	callers[2].wantValue(1)
	for i := range hanging[1:] {
		hanging[i+1].reply("done")
		engaged[i+1].wantValue("done")
	}
}

// The first request of a merged call may be reused while the call is being sent.
func TestMergedCallHasItsOwnArguments(t *testing.T) {
	first := acquireOf("a", "1")
	args := append(make([]string, 0, 100), first.Args...)
	first.Args = args
	b := new(batch)
	b.add(first)
	b.add(acquireOf("a", "2"))
	if len(b.calls) != 1 || len(b.calls[0].cmd.Args) <= len(args) {
		t.Fatalf("calls %+v, want one with the arguments of both", b.calls)
	}
	if args[:cap(args)][len(args)] != "" || &b.calls[0].cmd.Args[0] == &args[0] {
		t.Error("the call uses the arguments of the first request")
	}
}

// A Conn gets the values from the caller's context, but not its end. For several requests the
// values come from the first caller; renewals come last.
func TestPipelinePassesContextValues(t *testing.T) {
	r := newFixture(t)
	first := plain("engaged")
	engaged := []*testCall{r.call(first, time.Hour)}
	hanging := []*exchange{r.sent()}
	if have := hanging[0].ctx.Value(callerKey{}); have != first {
		t.Errorf("a single request: have the values of %v", have)
	}
	for i := range maxWorkers - 1 {
		engaged = append(engaged, r.call(plain(fmt.Sprint("engaged ", i)), time.Hour))
		hanging = append(hanging, r.sent())
	}
	renewal := plain("renewal")
	renewal.Extends = true
	requests := []*Request{renewal, acquireOf("a", "a1"), plain("p1"), acquireOf("a", "a2")}
	callers := make([]*testCall, len(requests))
	for i, req := range requests {
		callers[i] = r.call(req, time.Hour)
	}
	hanging[0].reply("done")
	e := r.sent()
	if have := e.ctx.Value(callerKey{}); have != requests[1] {
		t.Errorf("a batch: have the values of %v, want those of the first call", have)
	}
	left := errors.New("left")
	callers[1].leave(left)
	callers[1].wantErr(left)
	if err := e.ctx.Err(); err != nil {
		t.Errorf("the first caller has left, and the context of the batch has ended: %v", err)
	}
	e.reply("extended", []any{now, int64(1), int64(2)}, int64(1))
	callers[0].wantValue("extended")
	for _, c := range callers[2:] {
		if reply := c.reply(); reply.Err != nil {
			t.Errorf("reply %v", reply)
		}
	}
	for _, e := range hanging[1:] {
		e.reply("done")
	}
	for _, c := range engaged {
		c.wantValue("done")
	}
}

// A reply with the wrong length to a merged call is rejected: each request could mistake it for a
// grant.
func TestPipelineChecksMergedReplies(t *testing.T) {
	for _, reply := range []any{
		nil, now, "7", []any{}, []any{now}, []any{now, "7"}, []any{now, "7", "8", "9"},
	} {
		r := newFixture(t)
		engaged, hanging := r.occupyWorkers()
		callers := []*testCall{r.call(acquireOf("n", "a"), time.Hour), r.call(acquireOf("n", "b"), time.Hour)}
		hanging[0].reply("done")
		r.sent().reply(reply)
		for i, c := range callers {
			have := c.reply()
			if answer, void, err := wire.ParseAcquire(have.Value); have.Err == nil && err == nil {
				t.Errorf("%#v becomes, for request %d, %+v, void %v", reply, i, answer, void)
			}
		}
		for _, e := range hanging[1:] {
			e.reply("done")
		}
		for _, c := range engaged {
			c.wantValue("done")
		}
	}
}

func TestPipelineLoadsScripts(t *testing.T) {
	r := newFixture(t)
	engaged, hanging := r.occupyWorkers()
	callers := []*testCall{
		r.call(plain("p"), time.Hour), r.call(acquireOf("n", "a"), time.Hour),
		r.call(acquireOf("n", "b"), time.Hour), r.call(plain("q"), time.Hour),
	}
	hanging[0].reply("done")
	e := r.sent()
	unknown := redisconn.ServerError("NOSCRIPT No matching script. Please use EVAL.")
	e.reply("known", unknown, unknown)
	e = r.sent()
	wantCmds(t, e, "EVAL "+wire.Plain().Acquire.Text+" 2 n n:q check a ttl until entry b ttl until entry", "EVAL "+wire.Plain().Release.Text+" 1 key q")
	e.reply([]any{now, "7", int64(0)}, unknown)
	callers[0].wantValue("known")
	callers[1].wantValue([]any{now, "7"})
	callers[2].wantValue([]any{now, int64(0)})
	callers[3].wantErr(unknown) // and not a third time
	for _, e := range hanging[1:] {
		e.reply("done")
	}
	for _, c := range engaged {
		c.wantValue("done")
	}
	r.nothingSent()
}

// A caller that leaves should not wait for a hanging Conn, whatever the reason.
func TestPipelineCallersLeave(t *testing.T) {
	r := newFixture(t)
	late, gone := r.call(plain("late"), 20*time.Millisecond), r.call(plain("gone"), time.Hour)
	hanging := []*exchange{r.sent(), r.sent()}
	cause := errors.New("no patience")
	gone.leave(cause)
	gone.wantErr(cause)
	late.wantErr(ErrNoReply)
	past := r.call(plain("past"), -time.Hour)
	if err := past.reply().Err; !errors.Is(err, ErrNoReply) && !errors.Is(err, ErrNotSent) {
		t.Errorf("error %v from a call that timed out", err)
	}
	stays := r.call(plain("stays"), time.Hour)
	for e := r.sent(); ; e = r.sent() {
		arg := e.cmds[0][len(e.cmds[0])-1]
		e.reply(arg)
		if arg == "stays" {
			break
		}
	}
	stays.wantValue("stays")
	for _, e := range hanging {
		e.reply("too late")
	}
}

// sendToNear makes the server near. It returns an exchange in flight, its callers, and the calls
// that wait for it.
func (r *fixture) sendToNear() (e *exchange, callers, waiting []*testCall) {
	r.t.Helper()
	engaged, hanging := r.occupyWorkers()
	r.mu.Lock()
	r.policy.roundTrip.add(0)
	r.mu.Unlock()
	for i := range 2*fewRequests + 1 {
		callers = append(callers, r.call(plain(fmt.Sprint("near ", i)), time.Hour))
	}
	r.nothingSent()
	for i := range hanging {
		hanging[i].reply("done")
		engaged[i].wantValue("done")
	}
	e = r.sent()
	sent := len(e.cmds)
	if sent <= fewRequests || sent == len(callers) {
		r.t.Fatalf("sent %q, want more than %d, but not all", e.cmds, fewRequests)
	}
	return e, callers[:sent], callers[sent:]
}

// wantAnswered answers each exchange until all calls have returned.
func (r *fixture) wantAnswered(calls []*testCall) {
	r.t.Helper()
	for answered := 0; answered < len(calls); {
		e := r.sent()
		e.reply(slices.Repeat([]any{"done"}, len(e.cmds))...)
		answered += len(e.cmds)
	}
	for _, c := range calls {
		c.wantValue("done")
	}
}

// Requests to a near server wait for a batch in flight while they are fewer, and are sent when
// it ends.
func TestPipelineNearServer(t *testing.T) {
	r := newFixture(t)
	e, batch, waiting := r.sendToNear()
	e.reply(slices.Repeat([]any{"done"}, len(batch))...)
	for _, c := range batch {
		c.wantValue("done")
	}
	r.wantAnswered(waiting)
}

// Requests should stop waiting for a batch if its replies are late or nobody awaits it.
func TestPipelineNearServerHangs(t *testing.T) {
	t.Run("late", func(t *testing.T) {
		r := newFixture(t)
		e, batch, waiting := r.sendToNear()
		r.mu.Lock()
		sentAt := r.inFlight[0].sentAt
		r.mu.Unlock()
		r.wantAnswered(waiting)
		if after := time.Since(sentAt); after < lateReply {
			t.Errorf("sent after %v, want at least %v", after, lateReply)
		}
		for i := range 3 { // the late batch delays only the first ones
			c := r.call(plain(fmt.Sprint("later ", i)), time.Hour)
			r.sent().reply("done")
			c.wantValue("done")
		}
		r.mu.Lock()
		if r.inFlightRequests != 0 {
			t.Errorf("%d requests in flight are awaited, want 0", r.inFlightRequests)
		}
		r.mu.Unlock()
		e.reply(slices.Repeat([]any{"done"}, len(batch))...)
		for _, c := range batch {
			c.wantValue("done")
		}
	})
	t.Run("abandoned", func(t *testing.T) {
		r := newFixture(t)
		e, batch, waiting := r.sendToNear()
		for _, c := range batch {
			c.leave(nil)
			c.wantErr(context.Canceled)
		}
		r.wantAnswered(waiting)
		e.reply(slices.Repeat([]any{"too late"}, len(batch))...)
	})
}

// Even a server that was always fast may hang. A caller that sends its own request, with a Conn
// that enforces the deadline, should return as usual.
func TestPipelineFastServerHangs(t *testing.T) {
	for _, prompt := range []bool{false, true} {
		t.Run(fmt.Sprint("prompt ", prompt), func(t *testing.T) {
			r := newFixture(t)
			r.policy.prompt, r.fake.prompt = prompt, prompt
			quick := func() {
				t.Helper()
				for range 3 {
					c := r.call(plain("quick"), time.Hour)
					r.sent().answer <- []redisconn.Reply{{Value: "done"}}
					c.wantValue("done")
				}
			}
			var hanging []*exchange
			hang := func() { hanging = append(hanging, r.sent()) }

			quick()
			gone := r.call(plain("gone"), time.Hour)
			hang()
			gone.leave(nil)
			gone.wantErr(context.Canceled)
			quick()
			late := r.call(plain("late"), 20*time.Millisecond)
			hang()
			if err := late.reply().Err; !errors.Is(err, ErrNoReply) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want a timeout", err)
			}
			quick()
			// Other requests are queued meanwhile, and are sent when the first exchange ends.
			var all []*testCall
			for range 2 * maxWorkers {
				all = append(all, r.call(plain("one of many"), time.Hour))
			}
			for n := 0; n < len(all); {
				e := r.sent()
				n += len(e.cmds)
				e.reply(slices.Repeat([]any{"done"}, len(e.cmds))...)
			}
			for _, c := range all {
				c.wantValue("done")
			}
			if !prompt {
				for _, e := range hanging {
					e.reply("too late")
				}
			}
		})
	}
}

// If a caller leaves before its request is sent, the request must never be sent: it could acquire
// a lock for nobody.
func TestPipelineDropsUnsentRequests(t *testing.T) {
	r := newFixture(t)
	engaged, hanging := r.occupyWorkers()
	gone, late, stays := r.call(acquireOf("n", "gone"), time.Hour), r.call(plain("late"), 20*time.Millisecond), r.call(acquireOf("n", "stays"), time.Hour)
	gone.leave(nil)
	gone.wantErr(ErrNotSent)
	late.wantErr(ErrNotSent)
	hanging[0].reply("done")
	e := r.sent()
	wantCmds(t, e, "EVALSHA "+wire.Plain().Acquire.Hash+" 2 n n:q check stays ttl until entry")
	e.reply(now)
	stays.wantValue(now)
	for _, e := range hanging[1:] {
		e.reply("done")
	}
	for _, c := range engaged {
		c.wantValue("done")
	}
	r.nothingSent()
}

// However many callers before it have left, a request is sent when a worker is free.
func TestPipelineSkipsAbandonedRequests(t *testing.T) {
	for _, many := range []int{1, maxBatch - 1, maxBatch, maxBatch + 1, 3 * maxBatch} {
		r := newFixture(t)
		engaged, hanging := r.occupyWorkers()
		var gone []*testCall
		for i := range many {
			gone = append(gone, r.call(plain(fmt.Sprint("gone ", i)), time.Hour))
		}
		stays := r.call(plain("stays"), time.Hour)
		for _, c := range gone {
			c.leave(nil)
			c.wantErr(ErrNotSent)
		}
		hanging[0].reply("done")
		select {
		case e := <-r.fake.exchanges:
			wantCmds(t, e, "EVALSHA "+wire.Plain().Release.Hash+" 1 key stays")
			e.reply("done")
			stays.wantValue("done")
		case <-time.After(time.Second):
			t.Errorf("not sent behind %d abandoned requests, with a free worker", many)
			stays.leave(nil)
			stays.wantErr(ErrNotSent)
		}
		for _, e := range hanging[1:] {
			e.reply("done")
		}
		for _, c := range engaged {
			c.wantValue("done")
		}
	}
}

// echo answers each request with its own arguments, sometimes after a delay.
type echo struct {
	redisconn.Conn
	calls, most atomic.Int64
}

func (c *echo) Do(_ context.Context, _ time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.calls.Add(1)
	if rand.IntN(4) == 0 {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	}
	for i, cmd := range cmds {
		if cmd.Script == wire.Plain().Release {
			replies[i].Value = cmd.Args[0]
			continue
		}
		list := []any{now}
		for args := cmd.Args[1:]; len(args) > 0; args = args[4:] {
			list = append(list, args[0])
		}
		c.most.Store(max(c.most.Load(), int64(len(list)-1)))
		replies[i].Value = list
	}
}

// Requests, batches and buffers are reused. Each caller still gets its own reply, also
// when others leave at any moment.
func TestPipelineUnderLoad(t *testing.T) {
	t.Run("prompt", func(t *testing.T) { underLoad(t, true) })
	t.Run("not prompt", func(t *testing.T) { underLoad(t, false) })
}

func underLoad(t *testing.T, prompt bool) {
	const callers, rounds = 200, 100
	conn := new(echo)
	p := newPipeline(conn, serverclock.New())
	p.policy.prompt = prompt
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for j := range rounds {
				token := fmt.Sprintf("%d/%d", i, j)
				req, want := plain(token), fmt.Sprint(token)
				if rand.IntN(2) == 0 {
					req, want = acquireOf(fmt.Sprint(rand.IntN(5)), token), fmt.Sprint([]any{now, token})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(5000))*time.Microsecond)
				if rand.IntN(2) == 0 {
					ctx = t.Context()
				}
				reply, _, _ := p.Do(ctx, req, time.Now().Add(time.Duration(rand.IntN(20))*time.Millisecond))
				cancel()
				if reply.Err == nil && fmt.Sprint(reply.Value) != want {
					t.Errorf("reply %v, want %v", reply.Value, want)
				}
			}
		})
	}
	group.Wait()
	end := time.Now().Add(generous)
	for busy := true; busy; {
		p.mu.Lock()
		busy = p.policy.workers > 0 || len(p.queue) > 0
		if p.policy.workers < 0 || p.policy.workers > maxWorkers || time.Now().After(end) {
			t.Errorf("%d workers, %d queued in the end", p.policy.workers, len(p.queue))
			busy = false
		}
		if !busy && (p.policy.taking != 0 || p.inFlightRequests != 0) {
			t.Errorf("%d workers about to send, %d requests in flight in the end", p.policy.taking, p.inFlightRequests)
		}
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	if n := conn.calls.Load(); n >= callers*rounds {
		t.Errorf("%d round trips for %d requests: nothing was batched", n, callers*rounds)
	}
	if conn.most.Load() < 2 {
		t.Error("no requests were merged")
	}
}

// voidable is a request with an until argument.
func voidable(arg string) *Request {
	r := plain(arg)
	r.Until = len(r.Args)
	r.Args = append(r.Args, "0")
	return r
}

func voidOf(t *testing.T, e *exchange) int64 {
	t.Helper()
	at, err := strconv.ParseInt(e.cmds[0][len(e.cmds[0])-1], 10, 64)
	if err != nil {
		t.Fatalf("sent %q: %v", e.cmds, err)
	}
	return at
}

// A single request to a fast server is sent again if it gets no reply soon, but only if
// the first try can do nothing any more.
func TestPipelineRetriesVoidRequests(t *testing.T) {
	const ahead = 42 * time.Hour // offset of the server's clock
	server := func(local time.Time) int64 { return local.Add(ahead).UnixMicro() }
	quick := func(r *fixture) {
		r.t.Helper()
		for range 2 * meanOf {
			c := r.call(plain("quick"), time.Hour)
			select {
			case r.sent().answer <- []redisconn.Reply{{Value: server(time.Now())}}:
			case <-time.After(10 * directTimeout): // nobody waits for this answer any longer
				r.t.Skip("SKIPPED: the machine is too busy for a server to seem quick")
			}
			if reply := c.reply(); reply.Err != nil {
				r.t.Fatal(reply.Err)
			}
		}
		r.mu.Lock()
		fast := r.policy.fast
		r.mu.Unlock()
		if !fast {
			r.t.Skip("SKIPPED: the machine is too busy for a server to seem quick")
		}
	}
	prompt := func(t *testing.T) *fixture {
		r := newFixture(t)
		r.policy.prompt, r.fake.prompt = true, true
		quick(r)
		return r
	}
	t.Run("the first try is void", func(t *testing.T) {
		r := prompt(t)
		before := time.Now()
		c := r.call(voidable("a"), time.Hour)
		first := voidOf(t, r.sent())
		if latest := server(time.Now().Add(directTimeout)); first > latest || first < server(before) {
			t.Errorf("void after %d, want from %d to %d", first, server(before), latest)
		}
		e := r.sent()
		if second, want := voidOf(t, e), server(before.Add(time.Hour)); second < want {
			t.Errorf("the second is void %d µs early", want-second)
		}
		late := max(server(time.Now()), first+1)
		e.reply(late)
		c.wantValue(late)
	})
	t.Run("it is not, since the clock was set back", func(t *testing.T) {
		r := prompt(t)
		for _, reply := range []func(first int64) any{
			func(first int64) any { return first },
			func(first int64) any { return first - time.Minute.Microseconds() },
			func(first int64) any { return []any{first - 1, "7"} },
		} {
			quick(r)
			c := r.call(voidable("a"), time.Hour)
			first := voidOf(t, r.sent())
			r.sent().reply(reply(first))
			c.wantErr(errFirstTryPending)
		}
	})
	t.Run("unknown, since the clock is not known", func(t *testing.T) {
		for _, reset := range []func(c *serverclock.Clock){
			(*serverclock.Clock).Reset,
			func(c *serverclock.Clock) {
				c.Reset()
				then := time.Now().Add(-time.Minute)
				c.Learn(then, then, server(then))
			},
		} {
			r := prompt(t)
			reset(r.clock)
			c := r.call(voidable("a"), time.Hour)
			if void := voidOf(t, r.sent()); void != r.clock.Latest(time.Now()) && void < server(time.Now().Add(time.Minute)) {
				t.Errorf("void after %d", void)
			}
			if reply := c.reply(); !redisconn.IsTimeout(reply.Err) {
				t.Errorf("%+v: want that it had no reply", reply)
			}
			r.nothingSent()
		}
	})
	t.Run("the second try is refused", func(t *testing.T) {
		r := prompt(t)
		c := r.call(voidable("a"), time.Hour)
		r.sent()
		r.sent().reply(redisconn.ServerError("OOM command not allowed"))
		err := c.reply().Err
		var refusal redisconn.ServerError
		if errors.As(err, &refusal) || err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%v: want that the outcome of the first is unknown", err)
		}
	})
	t.Run("it changes nothing", func(t *testing.T) {
		r := prompt(t)
		c := r.call(plain("a"), time.Hour)
		r.sent()
		before := server(time.Now().Add(-time.Minute)) // the value does not matter
		r.sent().reply([]any{before, "1"})
		c.wantValue([]any{before, "1"})
	})
	t.Run("it was not sent", func(t *testing.T) {
		r := prompt(t)
		for _, reply := range []any{redisconn.ServerError("OOM command not allowed"), server(time.Now())} {
			quick(r)
			start := time.Now()
			c := r.call(voidable("a"), time.Hour)
			r.sent().answer <- []redisconn.Reply{{Err: redisconn.ErrUnsent}}
			e := r.sent()
			if took := time.Since(start); took >= directTimeout {
				t.Skipf("SKIPPED: the machine stood still for %v", took)
			}
			e.reply(reply)
			refusal, _ := reply.(error)
			if have := c.reply(); have.Value != reply && (refusal == nil || !errors.Is(have.Err, refusal)) {
				t.Errorf("%+v, want %v, as for a single try", have, reply)
			}
		}
	})
}
