package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A pipeliner sends requests to the server. It bounds each caller by its context and its
// deadline, whatever the client library does, because a worker does the waiting. While
// all workers are busy, requests accumulate and are sent as one pipeline. Requests on one
// name become one script call. Under load there are fewer and fuller packets: most of a
// lock's cost to the server is reading from sockets.
type pipeliner struct {
	conn   Conn
	clock  *clock
	prompt bool // the Conn returns by its context's deadline

	requests requestPool

	mu               sync.Mutex
	queue            []*request
	inFlight         []*batch // batches of workers
	timerAt          time.Time
	timer            *time.Timer // fires at timerAt
	workers          int
	inFlightRequests int                     // requests of batches in flight
	singles          int                     // consecutive exchanges of a single request
	fast             bool                    // the last exchange succeeded, within fastReply
	skipCoalescing   int                     // batches left that are not coalesced
	loading          map[*script]*scriptLoad // scripts being sent to the server
	lastErr          error                   // why the last exchange failed: see explainsNext
}

const (
	maxWorkers    = 4
	maxBatch      = 128
	minBatch      = 4
	minSingles    = 16                     // consecutive single requests after which callers send directly
	fastReply     = 10 * time.Millisecond  // a server that replies within this is fast
	directTimeout = 100 * time.Millisecond // of a caller that sends its own request
)

// A request is one script call. Its owner recycles it only after it was received from
// done.
type request struct {
	ctx         context.Context // the caller's, for its values
	script      *script
	slot        *slotState // of its keys
	cmd         Cmd        // EVALSHA, sha, number of keys, keys, arguments
	coalescable bool       // of a kind that can be coalesced
	mergeKey    string     // requests with the same key may become one call; or ""
	argsStart   int        // index in cmd where the arguments to merge begin
	untilIndex  int        // index in cmd of the until argument, or 0
	reply       Reply
	done        chan struct{}
	until       time.Time // when the caller stops waiting

	// Guarded by the pipeliner's mutex:
	sent      bool
	abandoned bool // the caller does not wait any longer
	timedOut  bool // because until has passed
	connErr   error
	batch     *batch
}

// A batch is what one worker is sending, with its buffers.
type batch struct {
	requests []*request
	calls    []call
	parts    []call // of a coalesced call
	cmd      Cmd    // command of the coalesced call
	cmds     []Cmd
	replies  []Reply

	// Guarded by the pipeliner's mutex:
	callers   int  // that still wait
	abandoned bool // all callers have left; the worker does not count any longer
}

// requestPool holds requests of one pipeliner for reuse. Stores do not share a pool: the
// channel of a request may belong to a test's synctest bubble.
type requestPool struct{ pool sync.Pool }

func (r *requestPool) get() *request {
	if old, ok := r.pool.Get().(*request); ok {
		return old
	}
	return &request{done: make(chan struct{}, 1)}
}

func (r *requestPool) put(old *request) { r.pool.Put(old) }

var (
	errNoReply = errors.New("no reply in time")
	errNotSent = errors.New("timed out before sending: no connection was free")
)

func newRequest(s *script, at *slotState, keys ...string) *request {
	r := at.pipeliner.requests.get()
	r.script, r.slot = s, at
	r.cmd = append(r.cmd[:0], "EVALSHA", s.sha, count(len(keys)))
	r.cmd = append(r.cmd, keys...)
	r.coalescable, r.mergeKey, r.untilIndex, r.reply = false, "", 0, Reply{}
	r.sent, r.abandoned, r.timedOut, r.connErr, r.batch = false, false, false, nil, nil
	return r
}

// key adds a key. It must be called before args.
func (r *request) key(key string) {
	r.cmd = append(r.cmd, key)
	r.cmd[2] = count(len(r.cmd) - 3)
}

func (r *request) args(args ...string) { r.cmd = append(r.cmd, args...) }

// untilArg adds the argument after which the request is void. Its value is written when
// the request is sent, from the bounds of the server's clock at that time.
func (r *request) untilArg() {
	r.untilIndex = len(r.cmd)
	r.cmd = append(r.cmd, "0")
}

// voidAfter writes that argument, if there is one: µs of the server's clock.
func (r *request) voidAfter(server int64) {
	new(voidTexts).write(r, server)
}

// voidTexts writes the until arguments of one batch. Arguments that differ by less than
// 1 ms share the text of the first one, which is the earlier: each text is an allocation.
type voidTexts struct {
	server int64
	text   string
}

func (v *voidTexts) write(r *request, server int64) {
	if r.untilIndex == 0 {
		return
	}
	if v.text == "" || server < v.server || server-v.server >= 1000 {
		v.server, v.text = server, decimal(server)
	}
	r.cmd[r.untilIndex] = v.text
}

// do sends a request and returns its reply. It takes ownership of r. A request that
// changes something is void after until: once it is answered, no try of it can act any
// more. retried reports that the request was sent again after a first try without reply.
// Then the reply may come after the first try has done the work already, and a refusal
// does not tell the outcome of the first try.
func (p *pipeliner) do(ctx context.Context, r *request, until time.Time) (reply Reply, retried bool) {
	if ctx.Err() != nil {
		p.requests.put(r)
		return Reply{Err: context.Cause(ctx)}, false
	}
	if !p.reserveWorker(ctx) {
		return p.enqueue(ctx, r, until, false), false
	}
	reply, untilServer := p.sendDirect(ctx, r, until)
	switch {
	case errors.Is(reply.Err, ErrUnsent):
		return p.enqueue(ctx, r, until, false), false
	case !timedOut(reply.Err) || ctx.Err() != nil || !time.Now().Before(until) || r.untilIndex > 0 && untilServer == 0:
		p.requests.put(r)
		return reply, false
	}
	changes := r.untilIndex > 0
	reply = p.enqueue(ctx, r, until, true)
	if !changes {
		return reply, true
	}
	if now, ok := serverTime(reply); ok && now <= untilServer {
		return Reply{Err: errFirstTryPending}, true
	}
	reply.Err = unknownOutcome(reply.Err)
	return reply, true
}

// enqueue has a worker send a request.
func (p *pipeliner) enqueue(ctx context.Context, r *request, until time.Time, retried bool) Reply {
	p.mu.Lock()
	newWorker := p.workers < maxWorkers
	if newWorker {
		p.workers++
	}
	r.ctx, r.until = ctx, until
	p.queue = append(p.queue, r)
	p.setTimer(until)
	p.mu.Unlock()
	if newWorker {
		go p.work()
	}
	var err error
	select {
	case <-r.done:
		if !r.timedOut {
			reply := r.reply
			r.ctx = nil
			p.requests.put(r)
			return reply
		}
		err = errNoReply
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	sent, failed := p.abandon(r)
	if !sent && !retried {
		err = errNotSent
	}
	if failed != nil {
		err = fmt.Errorf("%w (on the previous request; this one: %w)", failed, err)
	}
	return Reply{Err: err}
}

// setTimer makes sure that a caller's timeout is noticed. All callers share one timer,
// since most requests are answered long before. The caller holds p.mu.
func (p *pipeliner) setTimer(at time.Time) {
	switch {
	case !p.timerAt.IsZero() && !at.Before(p.timerAt):
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(time.Until(at), p.expireCallers)
	default:
		p.timer.Reset(time.Until(at))
	}
	p.timerAt = at
}

// expireCallers wakes the callers whose time is over.
func (p *pipeliner) expireCallers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timerAt = time.Time{}
	now := time.Now()
	all := slices.Clone(p.queue)
	for _, b := range p.inFlight {
		all = append(all, b.requests...)
	}
	for _, r := range all {
		switch {
		case r.abandoned:
		case r.until.After(now):
			p.setTimer(r.until)
		default:
			p.detach(r)
			r.timedOut = true
			r.done <- struct{}{}
		}
	}
}

// reserveWorker reserves a worker's slot for a caller that can send its own request.
func (p *pipeliner) reserveWorker(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.prompt || !p.fast || p.singles < minSingles || p.workers == maxWorkers || len(p.queue) > 0 || ctx.Err() != nil {
		return false
	}
	p.workers++
	return true
}

// A deadlineContext has a deadline that a prompt Conn enforces by itself. It has no
// timer, and Done is not closed at the deadline: to set and stop a timer for each request
// costs more than the request.
type deadlineContext struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (l deadlineContext) Deadline() (time.Time, bool) { return l.at, true }

// timedOut reports whether a Conn gave up waiting.
func timedOut(err error) bool {
	if err == nil {
		return false
	}
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// sendDirect sends a request from the caller's own goroutine. This avoids two goroutine
// switches, which cost more than everything else that dibs does for a lock. It is for
// fast servers, and gives up early, because a read may ignore a cancelled context. do
// then repeats the request through a worker, if that is safe. untilServer is the server's
// time after which this first try can do nothing. It is 0 if the server's clock is not
// known well enough; then the try can act until the caller's deadline.
func (p *pipeliner) sendDirect(ctx context.Context, r *request, until time.Time) (reply Reply, untilServer int64) {
	b := batches.Get().(*batch)
	b.requests = append(b.requests, r)
	at := time.Now().Add(directTimeout)
	if until.Before(at) {
		at = until
	} else {
		untilServer = p.clock.earliest(at)
	}
	if untilServer > 0 {
		r.voidAfter(untilServer)
	} else {
		r.voidAfter(p.clock.latest(until))
	}
	p.send(deadlineContext{ctx, at}, b)
	b.reset()
	batches.Put(b)
	reply = r.reply
	p.mu.Lock()
	more := len(p.queue) > 0
	if !more {
		p.workers--
	}
	p.mu.Unlock()
	if more {
		go p.work()
	}
	return reply, untilServer
}

// abandon records that a caller does not wait any longer. It reports whether its request
// was sent, and why the exchange before failed, if it did: that is often why this one got
// no reply.
func (p *pipeliner) abandon(r *request) (sent bool, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.abandoned {
		p.detach(r)
	}
	return r.sent, r.connErr
}

// detach removes a request. A worker whose callers have all left may hang for long, so
// another worker may replace it. The caller holds p.mu.
func (p *pipeliner) detach(r *request) {
	r.abandoned, r.connErr = true, p.lastErr
	if i := slices.Index(p.queue, r); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	b := r.batch
	if b == nil {
		return
	}
	b.callers--
	if b.callers > 0 || b.abandoned {
		return
	}
	b.abandoned = true
	p.workers--
	if len(p.queue) > 0 {
		p.workers++
		go p.work()
	}
}

// work sends queued requests until none is left.
func (p *pipeliner) work() {
	b := batches.Get().(*batch)
	for yieldToCallers(); p.fillBatch(b); yieldToCallers() {
		p.send(b.valuesContext(), b)
		if !p.deliver(b) {
			return // callers that have left may still read b
		}
		b.reset()
	}
	batches.Put(b)
}

// valuesContext returns a context with the values of the first caller, such as a trace,
// and without an end. A batch is one call of the library: it cannot be part of several
// traces, nor end with one of its callers.
func (b *batch) valuesContext() context.Context { return context.WithoutCancel(b.requests[0].ctx) }

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) reset() {
	clear(b.requests)
	clear(b.calls)
	clear(b.parts)
	clear(b.cmd)
	clear(b.cmds)
	clear(b.replies)
	b.requests, b.calls, b.cmds, b.replies = b.requests[:0], b.calls[:0], b.cmds[:0], b.replies[:0]
}

// yieldToCallers lets other goroutines enqueue their requests first, so that they go into
// one batch.
func yieldToCallers() { runtime.Gosched() }

// fillBatch fills the batch with a worker's share of the queue: while the server
// processes one batch, the client prepares the next. It reports false if the queue is
// empty; then the worker is not counted any longer.
func (p *pipeliner) fillBatch(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	quota := (len(p.queue) + p.inFlightRequests + maxWorkers - 1) / maxWorkers
	n := min(len(p.queue), max(quota, minBatch), maxBatch)
	if n < len(p.queue) && p.workers < maxWorkers {
		p.workers++
		go p.work()
	}
	p.inFlightRequests += n
	var until voidTexts
	for _, r := range p.queue[:n] {
		r.sent, r.batch = true, b
		until.write(r, p.clock.latest(r.until))
		b.requests = append(b.requests, r)
	}
	p.queue = slices.Delete(p.queue, 0, n)
	b.callers, b.abandoned = len(b.requests), false
	if b.callers == 0 {
		p.workers--
		return false
	}
	p.inFlight = append(p.inFlight, b)
	return true
}

// deliver wakes the callers, and reports whether the worker is still counted.
func (p *pipeliner) deliver(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlightRequests -= len(b.requests)
	at := slices.Index(p.inFlight, b)
	p.inFlight = slices.Delete(p.inFlight, at, at+1)
	for _, r := range b.requests {
		r.batch = nil
		if !r.abandoned {
			r.done <- struct{}{}
		}
	}
	return !b.abandoned
}

// send does one round trip, and a second one for calls that could not be coalesced.
func (p *pipeliner) send(ctx context.Context, b *batch) {
	for _, r := range b.requests {
		b.add(r)
	}
	if p.mayCoalesce() {
		b.coalesce()
	}
	if left := p.exchange(ctx, b); len(left) > 0 {
		b.calls = append(b.calls[:0], left...)
		p.exchange(ctx, b)
	}
}

// mayCoalesce reports whether calls are coalesced at present.
func (p *pipeliner) mayCoalesce() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipCoalescing = max(p.skipCoalescing-1, 0)
	return p.skipCoalescing == 0
}

// exchange does one round trip, and more for scripts that the server does not know. It
// returns the calls that are not answered yet. Requests that were merged into one call
// share its reply.
func (p *pipeliner) exchange(ctx context.Context, b *batch) (left []call) {
	b.cmds, b.replies = b.cmds[:0], b.replies[:0]
	for i := range b.calls {
		b.cmds = append(b.cmds, b.calls[i].cmd)
		b.replies = append(b.replies, Reply{})
	}
	sent := time.Now()
	p.conn.Do(ctx, b.cmds, b.replies)
	p.loadScripts(ctx, b)
	received := time.Now()
	p.recordExchange(b, received.Sub(sent))
	joined := 0
	for i := range b.calls {
		p.clock.observeError(b.replies[i].Err)
		if now, ok := serverTime(b.replies[i]); ok {
			p.clock.learn(sent, received, now)
		}
		left = append(left, b.calls[i].distribute(b.replies[i])...)
		joined += len(b.calls[i].parts)
	}
	if len(left) > joined/2 {
		p.mu.Lock()
		p.skipCoalescing = coalescePause
		p.mu.Unlock()
	}
	return left
}

// recordExchange updates what decides whether the next requests may be sent directly.
func (p *pipeliner) recordExchange(b *batch, took time.Duration) {
	ok := took < fastReply && b.replies[0].Err == nil
	p.mu.Lock()
	if p.singles++; len(b.requests) > 1 {
		p.singles = 0
	}
	p.fast = ok
	p.lastErr = explainsNext(b.replies[0].Err)
	p.mu.Unlock()
}

// explainsNext returns err if it may be the reason why the next request gets no reply: an
// error of the connection, or of a server that may serve soon. A refused request or a
// closed client is no such reason.
func explainsNext(err error) error {
	if err == nil {
		return nil
	}
	var server ServerError
	if errors.As(err, &server) && !server.transient() || errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsent) {
		return nil
	}
	return err
}

// A call is one script call. It serves one request, several requests on one name, or all
// requests in parts.
type call struct {
	script *script
	cmd    Cmd
	first  *request
	more   []*request
	parts  []call
}

// add makes a request a call of its own, or merges it into a call on the same name.
func (b *batch) add(r *request) {
	for i := range b.calls {
		c := &b.calls[i]
		if r.mergeKey == "" || c.first.mergeKey != r.mergeKey {
			continue
		}
		if c.more == nil {
			c.cmd = append(Cmd(nil), c.cmd...)
		}
		c.more = append(c.more, r)
		c.cmd = append(c.cmd, r.cmd[r.argsStart:]...)
		return
	}
	b.calls = append(b.calls, call{script: r.script, first: r, cmd: r.cmd})
}

// distribute gives each request its part of the reply: the server's time and one answer.
// It returns the parts that have to be sent alone.
func (c *call) distribute(r Reply) (left []call) {
	if c.parts != nil {
		return c.distributeCoalesced(r)
	}
	c.first.reply = r
	if len(c.more) == 0 {
		return nil
	}
	list, ok := r.Value.([]any)
	if r.Err == nil && (!ok || len(list) != len(c.more)+2) {
		r = Reply{Err: unexpected(r.Value)}
	}
	for i, m := range append([]*request{c.first}, c.more...) {
		m.reply = r
		if r.Err == nil {
			m.reply = Reply{Value: []any{list[0], list[i+1]}}
		}
	}
	return nil
}
