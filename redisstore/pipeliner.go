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

// A pump carries requests to the server. It bounds each caller by its context and
// its deadline, whatever the client library underneath does, because a worker does
// the waiting; and while workers are busy, requests gather and go as one pipeline.
// Claims on one name that gather become one script call. Under load that is fewer
// and fuller packets: most of what a lock costs a server is reading from sockets.
type pipeliner struct {
	conn   Conn
	clock  *clock
	prompt bool // the Conn returns by its context's deadline

	requests requestPool

	mu      sync.Mutex
	queue   []*request
	flying  []*batch // with workers
	alarm   time.Time
	bell    *time.Timer // rings then
	workers int
	under   int                     // requests under way with workers
	lonely  int                     // so many times in a row there was but one
	swift   bool                    // the server answered, and quickly, when it was last asked
	apart   int                     // so many batches yet are not put together
	loading map[*script]*scriptLoad // on their way to the server
	failed  error                   // when it was last asked, if it failed: see telling
}

const (
	maxWorkers = 4
	maxBatch   = 128
	minBatch   = 4
	quiet      = 16                     // exchanges of one request in a row: nobody else is about
	swift      = 10 * time.Millisecond  // a server that answers within this is quick
	patience   = 100 * time.Millisecond // of a caller that waits for one by itself
)

// A request is one script call. Its owner recycles it only after done.
type request struct {
	ctx         context.Context // of its caller, for its values
	script      *script
	slot        *slotState // of its keys
	cmd         Cmd        // EVALSHA, sha, number of keys, keys, arguments
	coalescable bool       // of a kind that can go together with others
	merge       string     // requests with the same may become one, or ""
	claims      int        // where the claims begin in cmd, for these
	void        int        // where cmd says when it is void, or 0
	reply       Reply
	done        chan struct{}
	until       time.Time // the caller waits no longer

	// Guarded by the pump's mutex:
	sent   bool
	gone   bool // the caller has left,
	late   bool // because his time was over
	failed error
	batch  *batch
}

// A batch is what one worker has under way, and what it needs for that.
type batch struct {
	requests []*request
	calls    []call
	parts    []call // of a joint call,
	cmd      Cmd    // and its command
	cmds     []Cmd
	replies  []Reply

	// Guarded by the pump's mutex:
	callers int  // that still wait
	stuck   bool // all have left: the worker is not counted any more
}

// recycled are the requests of one pump that may be used again. They are not shared with
// other stores: what a request waits on may belong to a test's bubble.
type requestPool struct{ pool sync.Pool }

func (r *requestPool) get() *request {
	if old, ok := r.pool.Get().(*request); ok {
		return old
	}
	return &request{done: make(chan struct{}, 1)}
}

func (r *requestPool) put(old *request) { r.pool.Put(old) }

var (
	errLate   = errors.New("no answer in time")
	errUnsent = errors.New("not sent in time: no connection was free")
)

func newRequest(s *script, at *slotState, keys ...string) *request {
	r := at.pipeliner.requests.get()
	r.script, r.slot = s, at
	r.cmd = append(r.cmd[:0], "EVALSHA", s.sha, count(len(keys)))
	r.cmd = append(r.cmd, keys...)
	r.coalescable, r.merge, r.void, r.reply = false, "", 0, Reply{}
	r.sent, r.gone, r.late, r.failed, r.batch = false, false, false, nil, nil
	return r
}

// key adds a key, before there are arguments.
func (r *request) key(key string) {
	r.cmd = append(r.cmd, key)
	r.cmd[2] = count(len(r.cmd) - 3)
}

func (r *request) args(args ...string) { r.cmd = append(r.cmd, args...) }

// untilArg adds the argument after which the request is void. It is written when the
// request is sent, by what is known of the server's clock then.
func (r *request) untilArg() {
	r.void = len(r.cmd)
	r.cmd = append(r.cmd, "0")
}

// voidAfter writes that argument, if there is one: µs of the server's clock.
func (r *request) voidAfter(server int64) {
	if r.void > 0 {
		r.cmd[r.void] = decimal(server)
	}
}

// do sends a request and returns its reply. It takes the request over. A request that
// may change something is void after until; if it is answered, no try of it can act any
// more. twice says that it was sent again after a first time had no answer: then a
// reply may be that of a server which has done it already, and a refusal says nothing of
// the first time.
func (p *pipeliner) do(ctx context.Context, r *request, until time.Time) (reply Reply, twice bool) {
	if ctx.Err() != nil {
		p.requests.put(r)
		return Reply{Err: context.Cause(ctx)}, false
	}
	if !p.reserveWorker(ctx) {
		return p.queued(ctx, r, until, false), false
	}
	reply, void := p.direct(ctx, r, until)
	switch {
	case errors.Is(reply.Err, ErrUnsent):
		return p.queued(ctx, r, until, false), false
	case !timedOut(reply.Err) || ctx.Err() != nil || !time.Now().Before(until) || r.void > 0 && void == 0:
		p.requests.put(r)
		return reply, false
	}
	changes := r.void > 0
	reply = p.queued(ctx, r, until, true)
	if !changes {
		return reply, true
	}
	if now, ok := serverTime(reply); ok && now <= void {
		return Reply{Err: errEarly}, true
	}
	reply.Err = unknown(reply.Err)
	return reply, true
}

// queued has a worker send a request.
func (p *pipeliner) queued(ctx context.Context, r *request, until time.Time, twice bool) Reply {
	p.mu.Lock()
	hire := p.workers < maxWorkers
	if hire {
		p.workers++
	}
	r.ctx, r.until = ctx, until
	p.queue = append(p.queue, r)
	p.wakeAt(until)
	p.mu.Unlock()
	if hire {
		go p.work()
	}
	var err error
	select {
	case <-r.done:
		if !r.late {
			reply := r.reply
			r.ctx = nil
			p.requests.put(r)
			return reply
		}
		err = errLate
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	sent, failed := p.leave(r)
	if !sent && !twice {
		err = errUnsent
	}
	if failed != nil {
		err = fmt.Errorf("%w (the request before; this one: %w)", failed, err)
	}
	return Reply{Err: err}
}

// wakeAt sees to it that somebody's time will be noticed to be over. There is one timer
// for all: most requests are answered long before. The caller holds p.mu.
func (p *pipeliner) wakeAt(at time.Time) {
	switch {
	case !p.alarm.IsZero() && !at.Before(p.alarm):
		return
	case p.bell == nil:
		p.bell = time.AfterFunc(time.Until(at), p.wake)
	default:
		p.bell.Reset(time.Until(at))
	}
	p.alarm = at
}

// wake tells those whose time is over.
func (p *pipeliner) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alarm = time.Time{}
	now := time.Now()
	all := slices.Clone(p.queue)
	for _, b := range p.flying {
		all = append(all, b.requests...)
	}
	for _, r := range all {
		switch {
		case r.gone:
		case r.until.After(now):
			p.wakeAt(r.until)
		default:
			p.drop(r)
			r.late = true
			r.done <- struct{}{}
		}
	}
}

// seize takes a worker's place for a caller that can do a worker's part itself.
func (p *pipeliner) reserveWorker(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.prompt || !p.swift || p.lonely < quiet || p.workers == maxWorkers || len(p.queue) > 0 || ctx.Err() != nil {
		return false
	}
	p.workers++
	return true
}

// limit is a context with a deadline that a prompt Conn keeps by itself. It has no
// timer, and its Done does not tell it: a timer for each request, set and stopped
// again, costs more than the request.
type limit struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (l limit) Deadline() (time.Time, bool) { return l.at, true }

// timedOut reports whether a Conn gave up waiting.
func timedOut(err error) bool {
	if err == nil {
		return false
	}
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// direct is the worker's part done by the caller itself: without two changes of
// goroutine, which cost more than all else that dibs does for a lock. It is for
// servers that answer quickly, and gives up early, because a read may not heed a
// cancelled context. do then sends the request again by way of a worker, if that is
// safe: void is the server's time after which this first try can do nothing, or 0 if
// the server's clock is not known well enough, and it can as long as the caller has.
func (p *pipeliner) direct(ctx context.Context, r *request, until time.Time) (reply Reply, void int64) {
	b := batches.Get().(*batch)
	b.requests = append(b.requests, r)
	at := time.Now().Add(patience)
	if until.Before(at) {
		at = until
	} else {
		void = p.clock.earliest(at)
	}
	if void > 0 {
		r.voidAfter(void)
	} else {
		r.voidAfter(p.clock.latest(until))
	}
	p.send(limit{ctx, at}, b)
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
	return reply, void
}

// leave notes that a caller does not wait any more. It reports whether its request
// has been sent, and how the connection failed the one before, if it did: that is
// often why this one had no answer.
func (p *pipeliner) leave(r *request) (sent bool, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.gone {
		p.drop(r)
	}
	return r.sent, r.failed
}

// drop takes a request out. A worker whose callers have all left may hang for long:
// another one may take its place. The caller holds p.mu.
func (p *pipeliner) drop(r *request) {
	r.gone, r.failed = true, p.failed
	if i := slices.Index(p.queue, r); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	b := r.batch
	if b == nil {
		return
	}
	b.callers--
	if b.callers > 0 || b.stuck {
		return
	}
	b.stuck = true
	p.workers--
	if len(p.queue) > 0 {
		p.workers++
		go p.work()
	}
}

// work sends what has gathered until nothing is left.
func (p *pipeliner) work() {
	b := batches.Get().(*batch)
	for yieldToCallers(); p.fillBatch(b); yieldToCallers() {
		p.send(b.values(), b)
		if !p.deliver(b) {
			return // callers that have left may still look at b
		}
		b.reset()
	}
	batches.Put(b)
}

// values is a context with the values of the caller who asked first, such as a trace,
// and with no end: a batch is one call of the library, which cannot be part of several
// traces, nor end with one of its callers.
func (b *batch) values() context.Context { return context.WithoutCancel(b.requests[0].ctx) }

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

// gather lets those who are about to ask do so: their requests go together then.
func yieldToCallers() { runtime.Gosched() }

// take fills the batch with a worker's share of what has gathered: while the server does
// one part, the client gets the next one ready. If there is nothing, the worker is no
// more.
func (p *pipeliner) fillBatch(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	share := (len(p.queue) + p.under + maxWorkers - 1) / maxWorkers
	n := min(len(p.queue), max(share, minBatch), maxBatch)
	if n < len(p.queue) && p.workers < maxWorkers {
		p.workers++
		go p.work()
	}
	p.under += n
	for _, r := range p.queue[:n] {
		r.sent, r.batch = true, b
		r.voidAfter(p.clock.latest(r.until))
		b.requests = append(b.requests, r)
	}
	p.queue = slices.Delete(p.queue, 0, n)
	b.callers, b.stuck = len(b.requests), false
	if b.callers == 0 {
		p.workers--
		return false
	}
	p.flying = append(p.flying, b)
	return true
}

// deliver wakes the callers, and reports whether the worker is still counted.
func (p *pipeliner) deliver(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under -= len(b.requests)
	at := slices.Index(p.flying, b)
	p.flying = slices.Delete(p.flying, at, at+1)
	for _, r := range b.requests {
		r.batch = nil
		if !r.gone {
			r.done <- struct{}{}
		}
	}
	return !b.stuck
}

// send does one round trip, and a second one for what could not be done together.
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

// together reports whether it makes sense to put calls together.
func (p *pipeliner) mayCoalesce() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apart = max(p.apart-1, 0)
	return p.apart == 0
}

// exchange does one round trip, and a second one for scripts that the server does not
// know. It returns the calls that are not answered yet. Requests that became one call
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
		p.apart = apart
		p.mu.Unlock()
	}
	return left
}

// judge decides whether the next requests may go directly.
func (p *pipeliner) recordExchange(b *batch, took time.Duration) {
	ok := took < swift && b.replies[0].Err == nil
	p.mu.Lock()
	if p.lonely++; len(b.requests) > 1 {
		p.lonely = 0
	}
	p.swift = ok
	p.failed = explainsNext(b.replies[0].Err)
	p.mu.Unlock()
}

// telling returns an error that says why the next request may have no answer: of the
// connection, or of a server that may serve soon. That a server refuses a request, or
// that the client is closed, says nothing of another one.
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

// A call is one script call that serves one request, or several claims on one name, or
// all that is in its parts.
type call struct {
	script *script
	cmd    Cmd
	first  *request
	more   []*request
	parts  []call
}

// add makes a request a call of its own, or part of one on the same name.
func (b *batch) add(r *request) {
	for i := range b.calls {
		c := &b.calls[i]
		if r.merge == "" || c.first.merge != r.merge {
			continue
		}
		if c.more == nil {
			c.cmd = append(Cmd(nil), c.cmd...)
		}
		c.more = append(c.more, r)
		c.cmd = append(c.cmd, r.cmd[r.claims:]...)
		return
	}
	b.calls = append(b.calls, call{script: r.script, first: r, cmd: r.cmd})
}

// answer gives each request its part of the reply: the server's time and one answer. It
// returns the parts that have to be asked by themselves.
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
