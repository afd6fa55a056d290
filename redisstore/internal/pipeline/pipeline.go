// Package pipeline sends script calls to Redis for callers with deadlines. It joins concurrent
// requests into batches, and tracks the server's clock. It does not depend on the scripts' effects.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/serverclock"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Pipeline sends requests to the server. Each caller is limited by its context and its deadline,
// whatever the client library does, because a worker does the waiting. While all workers are busy,
// or a batch is at a near server, requests accumulate and are sent together. Requests on the same
// name become one script call. Under load there are fewer and fuller packets: reading from sockets
// is most of a lock's cost to the server.
type Pipeline struct {
	conn  redisconn.Conn
	clock *serverclock.Clock
	loads scriptLoads

	mu               sync.Mutex
	policy           policy
	queue            []*Request
	inFlight         []*batch // batches that workers are sending
	inFlightRequests int      // requests in flight whose callers still wait
	timerAt          time.Time
	timer            *time.Timer // fires at timerAt
	lastErr          error       // why the last exchange failed: see explainsNext
}

func newPipeline(conn redisconn.Conn, c *serverclock.Clock) *Pipeline {
	return &Pipeline{conn: conn, clock: c, policy: policy{outage: newOutage()}}
}

// Reasons why a request has no reply.
var (
	ErrNoReply = errors.New("no reply in time")
	ErrNotSent = errors.New("timed out before sending")
	// The reply to a second try came before the first try became void.
	errFirstTryPending = errors.New("outcome unknown: the first attempt had no reply and may still arrive: the server's clock was set back")
)

// Do sends a request and returns its reply. The caller can use r again if Do returned reusable. A
// request that changes something is void after until: after its answer, no earlier try can take
// effect. retried reports that the request was sent again after a first try without a reply. In
// this case the first try may already have done the work, and a refusal does not reveal the
// outcome.
func (p *Pipeline) Do(ctx context.Context, r *Request, until time.Time) (reply redisconn.Reply, retried, reusable bool) {
	if ctx.Err() != nil {
		return redisconn.Reply{Err: context.Cause(ctx)}, false, true
	}
	r.ctx, r.until = ctx, until
	switch {
	case r.Extends && p.sendAlone(r):
		return r.reply, false, true
	case r.Extends || !p.reserveWorker():
		reply, reusable = p.enqueue(r, false)
		return reply, false, reusable
	}
	reply, untilServer := p.sendDirect(r)
	switch {
	case errors.Is(reply.Err, redisconn.ErrUnsent):
		reply, reusable = p.enqueue(r, false)
		return reply, false, reusable
	case !redisconn.IsTimeout(reply.Err) || ctx.Err() != nil || !time.Now().Before(until) || r.Voidable() && untilServer == 0:
		return reply, false, true
	}
	changes := r.Voidable()
	reply, reusable = p.enqueue(r, true)
	if !changes {
		return reply, true, reusable
	}
	if now, ok := wire.ServerTime(reply); ok && now <= untilServer {
		return redisconn.Reply{Err: errFirstTryPending}, true, reusable
	}
	reply.Err = UnknownOutcome(reply.Err)
	return reply, true, reusable
}

// UnknownOutcome replaces the error from a retry that was refused or not sent. The new error leaves
// the outcome open, because the first try may have been executed.
func UnknownOutcome(err error) error {
	var server redisconn.ServerError
	if errors.As(err, &server) || errors.Is(err, redisconn.ErrClosed) || IsUnsent(err) {
		return errors.New("outcome unknown: an earlier attempt had no reply, and the retry failed: " + err.Error())
	}
	return err
}

// IsUnsent reports whether a request was not sent: it waited for others or for a connection, or no
// connection could be opened.
func IsUnsent(err error) bool {
	return errors.Is(err, ErrNotSent) || errors.Is(err, redisconn.ErrUnsent) || redisconn.Unopened(err)
}

// Until writes the time after which a request is void into the request. It is for requests that are
// not sent by Do.
func (p *Pipeline) Until(r *Request, until time.Time) { new(voidTexts).write(r, p.clock.Latest(until)) }

// Learn updates the bounds of the server's clock from a reply to a request that was not sent by Do.
func (p *Pipeline) Learn(r redisconn.Reply, sent, received time.Time) {
	p.observeError(r.Err)
	if now, ok := wire.ServerTime(r); ok {
		p.clock.Learn(sent, received, now)
	}
}

// observeError discards the bounds of the clock if the error may mean that another server replies
// now. A timeout does not mean that.
func (p *Pipeline) observeError(err error) {
	if err == nil {
		return
	}
	var server redisconn.ServerError
	if redisconn.IsTimeout(err) || errors.Is(err, redisconn.ErrUnsent) || errors.As(err, &server) && !server.Transient() {
		return
	}
	p.clock.Reset()
}

// enqueue queues a request for a worker. The request is not reusable while a worker may still use
// it.
func (p *Pipeline) enqueue(r *Request, retried bool) (reply redisconn.Reply, reusable bool) {
	p.mu.Lock()
	p.queue = append(p.queue, r)
	p.setTimer(r.until)
	p.addWorker()
	p.mu.Unlock()
	var err error
	select {
	case <-r.done:
		if !r.timedOut {
			return r.reply, true
		}
		err = ErrNoReply
	case <-r.ctx.Done():
		err = context.Cause(r.ctx)
	}
	sent, failed := p.leave(r)
	full := p.fullPool(r)
	switch {
	case !sent && !retried:
		err = fmt.Errorf("%w: %s", ErrNotSent, p.whyLate(full, r.until, time.Now()))
	case r.timedOut && full != "":
		err = fmt.Errorf("%w: %s", ErrNoReply, full)
	}
	if failed != nil {
		err = fmt.Errorf("%w (on the previous request; this one: %w)", failed, err)
	}
	return redisconn.Reply{Err: err}, false
}

// whyLate returns why a request was not sent before its limit. full is the result of fullPool.
func (p *Pipeline) whyLate(full string, until, now time.Time) string {
	p.mu.Lock()
	narrow := p.policy.congestion.limit > 0
	p.mu.Unlock()
	late := load.TooLittleCPU(now.Sub(until))
	switch {
	case full != "":
		return full
	case late != nil:
		return late.Error()
	case narrow:
		return "the requests in progress take too long: the server or the network is slow"
	}
	return "the requests in progress have no reply"
}

// fullPool returns advice about the client's connection pool if a request may have waited for a
// connection, or "".
func (p *Pipeline) fullPool(r *Request) string {
	if pool, ok := p.conn.(redisconn.Pool); ok {
		if setting := pool.FullPool(r.Cmd.Key()); setting != "" {
			return redisconn.PoolAdvice(setting)
		}
	}
	return ""
}

// addWorker starts a worker for the queued requests, unless they should wait for a worker that is
// sending. They do not wait for a worker whose reply is late.
func (p *Pipeline) addWorker() {
	switch {
	case len(p.queue) == 0:
	case p.policy.outage.paused(p.policy.workers):
		p.setTimer(p.policy.outage.resumesAt(p.policy.workers))
	case p.policy.congestion.mustWait(p.queue, time.Now()):
		p.setTimer(p.policy.congestion.sentAt.Add(congestedAfter + time.Millisecond))
	case p.policy.addWorker(len(p.queue), p.inFlightRequests):
		go p.work()
	case !p.policy.mayOverlap(len(p.queue), p.inFlightRequests):
		p.setTimer(p.oldestAwaited().sentAt.Add(lateReply))
	}
}

func (p *Pipeline) maySend() bool { return p.policy.maySend(len(p.queue), p.inFlightRequests) }

// oldestAwaited returns the oldest batch in flight whose callers still wait.
func (p *Pipeline) oldestAwaited() *batch {
	return p.inFlight[slices.IndexFunc(p.inFlight, func(b *batch) bool { return b.awaited })]
}

// ceaseAwaiting records that no caller waits for a batch any longer.
func (p *Pipeline) ceaseAwaiting(b *batch) {
	if b.awaited {
		b.awaited = false
		p.inFlightRequests -= len(b.requests)
	}
}

func (p *Pipeline) ceaseAwaitingLate(now time.Time) {
	for _, b := range p.inFlight {
		if now.Sub(b.sentAt) >= lateReply {
			p.ceaseAwaiting(b)
		}
	}
}

// findLate records which replies are late. Their workers may hang for long, so others may
// replace them.
func (p *Pipeline) findLate(now time.Time) {
	for _, b := range p.inFlight {
		switch {
		case b.late:
		case now.Before(b.lateAt.Add(p.policy.ownDelay)):
			p.setTimer(b.lateAt.Add(p.policy.ownDelay))
		default:
			b.late = true
			p.ceaseAwaiting(b)
			p.policy.recordLate(now)
			if !b.abandoned {
				p.policy.outage.lateAwaited++
			}
		}
	}
}

// setTimer makes sure that a caller's timeout or a late reply is noticed. All share a single timer,
// since most requests are answered long before.
func (p *Pipeline) setTimer(at time.Time) {
	switch {
	case !p.timerAt.IsZero() && !at.Before(p.timerAt):
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(time.Until(at), p.checkTimes)
	default:
		p.timer.Reset(time.Until(at))
	}
	p.timerAt = at
}

// checkTimes wakes the callers whose time is over. If a reply is late, it sends the requests that
// wait for that reply or for its worker.
func (p *Pipeline) checkTimes() {
	// In a busy process, timers fire on time but network events do not. Both a reply and this
	// goroutine must wait for a processor.
	began := time.Now()
	runtime.Gosched()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timerAt = time.Time{}
	p.policy.ownDelay = load.OwnDelay(now.Sub(began))
	p.expireCallers(now)
	p.findLate(now)
	if !p.maySend() {
		p.ceaseAwaitingLate(now)
	}
	p.addWorker()
}

func (p *Pipeline) expireCallers(now time.Time) {
	all := slices.Clone(p.queue)
	for _, b := range p.inFlight {
		all = append(all, b.requests...)
	}
	for _, r := range all {
		switch {
		case r.abandoned || r.alone:
		case r.until.After(now):
			p.setTimer(r.until)
		default:
			p.detach(r)
			r.timedOut = true
			r.done <- struct{}{}
		}
	}
}

// reserveWorker reserves a worker's place for a caller that sends its own request.
func (p *Pipeline) reserveWorker() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policy.addDirect(len(p.queue), p.inFlightRequests)
}

// sendAlone sends an extension from the caller's own goroutine, as a worker would. It returns false
// if no worker could begin now. Nobody waits for a renewal, so it can take as long as the Conn
// does. In a busy process, each unneeded goroutine delays all others.
func (p *Pipeline) sendAlone(r *Request) bool {
	b := batches.Get().(*batch)
	if !p.beginAlone(b, r) {
		batches.Put(b)
		return false
	}
	p.send(b.newContext(), time.Time{}, b)
	if _, counted := p.endBatch(b); counted {
		p.leaveToOthers()
	}
	b.reset()
	batches.Put(b)
	return true
}

func (p *Pipeline) beginAlone(b *batch, r *Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case !p.policy.prompt || len(p.queue) > 0 || p.policy.congestion.limit > 0 || p.policy.outage.paused(p.policy.workers):
		return false
	case !p.policy.addWorker(1, p.inFlightRequests):
		return false
	}
	p.policy.taking--
	r.alone = true
	b.requests = append(b.requests, r)
	p.begin(b, now)
	return true
}

// leaveToOthers hands a worker's place to another worker if requests are queued.
func (p *Pipeline) leaveToOthers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.policy.taking--
	p.policy.removeWorker()
	p.addWorker()
}

// sendDirect sends a request from the caller's own goroutine. It gives up early, because a read may
// ignore a cancelled context. Do then repeats the request through a worker, if a repeat is safe.
// untilServer is the server's time after which this first try can do nothing. It is 0 if the
// server's clock is not known well enough; then the try can take effect until the caller's
// deadline.
func (p *Pipeline) sendDirect(r *Request) (reply redisconn.Reply, untilServer int64) {
	b := batches.Get().(*batch)
	b.requests = append(b.requests, r)
	at := time.Now().Add(directTimeout)
	if r.until.Before(at) {
		at = r.until
	} else {
		untilServer = p.clock.Earliest(at)
	}
	void := untilServer
	if void == 0 {
		void = p.clock.Latest(r.until)
	}
	new(voidTexts).write(r, void)
	p.send(r.ctx, at, b)
	b.reset()
	batches.Put(b)
	p.mu.Lock()
	more := len(p.queue) > 0
	if more {
		p.policy.taking++
	} else {
		p.policy.removeWorker()
	}
	p.mu.Unlock()
	if more {
		go p.work()
	}
	return r.reply, untilServer
}

// leave records that a caller no longer waits. It reports whether its request was sent, and the
// error of the previous exchange, if any: often this explains the missing reply.
func (p *Pipeline) leave(r *Request) (sent bool, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.abandoned {
		p.detach(r)
	}
	return r.sent, r.connErr
}

// detach removes a request. An exchange whose callers have all left keeps its worker until it is
// late. So few exchanges are in progress, however soon callers leave.
func (p *Pipeline) detach(r *Request) {
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
	if b.late {
		p.policy.outage.lateAwaited--
	}
	p.ceaseAwaiting(b)
	p.policy.leaveLink(len(b.requests), time.Since(b.sentAt))
	p.addWorker()
}

// work sends queued requests until none is left.
func (p *Pipeline) work() {
	b := batches.Get().(*batch)
	for yieldToCallers(); p.fillBatch(b); yieldToCallers() {
		p.send(b.newContext(), time.Time{}, b)
		if !p.deliver(b) {
			return
		}
		b.reset()
	}
	batches.Put(b)
}

// yieldToCallers lets other goroutines enqueue their requests first, so that they share a batch.
func yieldToCallers() { runtime.Gosched() }

// fillBatch fills the batch with a worker's share of the queue. If the queue is empty it returns
// false, and the worker is no longer counted.
func (p *Pipeline) fillBatch(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.addWorker() // for the remaining queue
	p.policy.taking--
	if len(p.queue) == 0 || !p.maySend() || p.policy.outage.forbids(p.policy.workers) {
		p.policy.removeWorker()
		return false
	}
	now := time.Now()
	p.choose(b, p.policy.quota(len(p.queue), p.inFlightRequests), now)
	n := len(b.requests)
	if n == 0 { // none can be answered in time
		p.policy.removeWorker()
		return false
	}
	p.begin(b, now)
	return true
}

// begin records the start of a batch.
func (p *Pipeline) begin(b *batch, now time.Time) {
	var until voidTexts
	for _, r := range b.requests {
		r.sent, r.batch = true, b
		until.write(r, p.clock.Latest(r.until))
	}
	n := len(b.requests)
	b.sentAt, b.callers, b.abandoned, b.awaited = now, n, false, true
	b.late, b.lateAt = false, now.Add(p.policy.lateAfter())
	p.setTimer(b.lateAt)
	p.inFlightRequests += n
	p.policy.congestion.sent += n
	p.policy.congestion.sentAt = now
	p.inFlight = append(p.inFlight, b)
}

// choose moves up to n requests from the queue to a batch: the first requests that can be answered
// in time. If there are none, and nothing is in flight or the exchanges in flight may hang, it
// moves the last request, which tests whether the link is still narrow.
func (p *Pipeline) choose(b *batch, n int, now time.Time) {
	congestion := &p.policy.congestion
	rest := p.queue[:0]
	for _, r := range p.queue {
		if len(b.requests) < n && congestion.inTime(now, r.until) {
			b.requests = append(b.requests, r)
		} else {
			rest = append(rest, r)
		}
	}
	if len(b.requests) == 0 && (congestion.sent == 0 || now.Sub(congestion.sentAt) > congestedAfter) {
		b.requests = append(b.requests, rest[len(rest)-1])
		rest = rest[:len(rest)-1]
	}
	clear(p.queue[len(rest):])
	p.queue = rest
}

// deliver wakes the callers, and reports whether the worker is still counted. It wakes them
// without the mutex, which they need for their next requests.
func (p *Pipeline) deliver(b *batch) bool {
	callers, counted := p.endBatch(b)
	for _, r := range callers {
		r.done <- struct{}{}
	}
	return counted
}

// endBatch ends a batch in flight. It returns the requests whose callers still wait.
func (p *Pipeline) endBatch(b *batch) (waiting []*Request, counted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ceaseAwaiting(b)
	at := slices.Index(p.inFlight, b)
	p.inFlight = slices.Delete(p.inFlight, at, at+1)
	waiting = b.requests[:0]
	for _, r := range b.requests {
		r.batch = nil
		if !r.abandoned {
			waiting = append(waiting, r)
		}
	}
	if !b.abandoned {
		p.policy.congestion.sent -= len(b.requests)
	}
	if b.late { // another worker took its place
		p.policy.outage.late--
		if !b.abandoned {
			p.policy.outage.lateAwaited--
		}
		p.addWorker()
		return waiting, false
	}
	p.policy.taking++
	return waiting, true
}

// send makes a round trip, and a second one for requests that could not be coalesced.
func (p *Pipeline) send(ctx context.Context, until time.Time, b *batch) {
	p.mu.Lock()
	coalesce, small := p.policy.mayCoalesce(len(b.requests)), p.policy.small()
	flagged := p.policy.unknown
	p.mu.Unlock()
	b.makeCalls(coalesce, small)
	alone, again := p.exchange(ctx, until, b, &flagged)
	if b.calls = p.awaited(b.calls[:0], again); len(b.calls) > 0 {
		b.coalesce(allKinds)
		contended, void := p.exchange(ctx, until, b, nil)
		alone = append(append(alone, contended...), void...)
	}
	if b.calls = p.awaited(b.calls[:0], alone); len(b.calls) > 0 {
		p.exchange(ctx, until, b, nil)
	}
}

// allKinds are the kinds that can be coalesced. If the server does not know a request's script, the
// request is sent by the script for coalesced calls even if it is alone: that script is ten times
// shorter. A contended request takes a second round trip and loads the large script.
var allKinds = wire.JoinSet{wire.JoinsAcquire: true, wire.JoinsRelease: true, wire.JoinsCancel: true}

// awaited appends the calls that had no effect and whose callers still wait.
func (p *Pipeline) awaited(to, calls []call) []call {
	if len(calls) == 0 {
		return to
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range calls {
		if c.isAwaited() {
			to = append(to, c)
			c.requests(func(r *Request) { r.sent = true })
		}
	}
	return to
}

// exchange makes a round trip, and more for scripts that the server does not know. It returns the
// calls that are not answered yet. Some must be sent alone. Others must be coalesced again, because
// they were in a call that was too late for another request. A slow server may not know the scripts
// for some requests. With flagged, these requests are also returned to be coalesced, because that
// script is small. flagged contains the kinds whose script was unknown before.
func (p *Pipeline) exchange(ctx context.Context, until time.Time, b *batch, flagged *wire.JoinSet) (alone, again []call) {
	b.cmds, b.replies = b.cmds[:0], b.replies[:0]
	for i := range b.calls {
		b.cmds = append(b.cmds, b.calls[i].cmd)
		b.replies = append(b.replies, redisconn.Reply{})
	}
	sent := time.Now()
	p.conn.Do(ctx, until, b.cmds, b.replies)
	if flagged != nil {
		if time.Since(sent) >= slowReply {
			again = b.removeUnknown()
		}
		p.recordUnknown(b, again, *flagged)
	}
	loaded := p.loadScripts(ctx, until, b) || len(again) > 0
	received := time.Now()
	coalesced := 0
	for i := range b.calls {
		p.Learn(b.replies[i], sent, received)
		rest := b.calls[i].distribute(b.replies[i])
		if b.calls[i].cameTooLate(b.replies[i]) {
			again = append(again, rest...)
			continue
		}
		alone = append(alone, rest...)
		coalesced += len(b.calls[i].parts)
	}
	if len(b.calls) > 0 {
		p.recordExchange(b, received.Sub(sent), len(alone), coalesced, loaded)
	}
	return alone, again
}

// recordUnknown records which scripts the server did not have, and which of the earlier unknown
// scripts it has now.
func (p *Pipeline) recordUnknown(b *batch, unknown []call, flagged wire.JoinSet) {
	if len(unknown) == 0 && flagged == (wire.JoinSet{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range unknown {
		p.policy.unknown[c.first.Joins] = true
		c.first.sent = false
	}
	for i, c := range b.calls {
		if c.parts == nil && b.replies[i].Err == nil {
			p.policy.unknown[c.first.Joins] = false
		}
	}
}

// recordExchange updates the policy after an exchange.
func (p *Pipeline) recordExchange(b *batch, took time.Duration, alone, coalesced int, loaded bool) {
	err := b.replies[0].Err
	p.mu.Lock()
	defer p.mu.Unlock()
	if !loaded && !b.abandoned && len(b.requests) > 0 {
		p.policy.recordCongestion(len(b.requests), took, redisconn.IsTimeout(err))
	}
	if worked, known := connectionOf(err); known {
		p.policy.recordConnection(worked, took, b.scripts(), time.Now())
	}
	p.policy.recordExchange(len(b.requests), took, err == nil)
	p.policy.recordCoalesced(alone, coalesced)
	p.lastErr = explainsNext(err)
}

// connectionOf reports whether the connection for an exchange worked: it was opened and did not
// end. known is false if no connection was used or no reply came: a worker that waited until its
// timeout has waited long enough.
func connectionOf(err error) (worked, known bool) {
	if err == nil {
		return true, true
	}
	var server redisconn.ServerError // costs an allocation
	if errors.As(err, &server) {
		return !strings.Contains(string(server), redisconn.Full), true
	}
	return false, !redisconn.IsTimeout(err) && !errors.Is(err, redisconn.ErrUnsent) && !errors.Is(err, redisconn.ErrClosed)
}

// explainsNext returns err if it may explain why the next request gets no reply: an error from the
// connection, or from a server that may recover soon. A refused request or a closed client does not
// explain it.
func explainsNext(err error) error {
	if err == nil {
		return nil
	}
	var server redisconn.ServerError
	if errors.As(err, &server) && !server.Transient() || errors.Is(err, redisconn.ErrClosed) || errors.Is(err, redisconn.ErrUnsent) {
		return nil
	}
	return err
}
