package dibs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// How a call comes by a lease: it asks the store, and if the name is taken it
// waits in the store's queue until it is told, or until it is time to ask again.
// Asking is idempotent, so it is also the heartbeat and the way to learn of a
// grant whose message went missing.

const (
	heartbeat   = driver.WaiterTTL / 2   // the longest time between two heartbeats
	cancelGrace = time.Second            // beyond a TTL: to clean up after what may come late
	clockSlack  = 100 * time.Millisecond // between the store's clock and ours
)

// A waiter is where a call hears of the events for its token.
type waiter struct {
	event chan driver.Event
	next  *waiter // another call with the same token
}

// listen registers a waiter, before the first question, so that no event for its
// token is missed.
func (c *Client) listen(token string) (*waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.start()
	w := c.spareWaiters
	if w == nil {
		w = &waiter{event: make(chan driver.Event, 1)}
	} else {
		c.spareWaiters = w.next
	}
	w.next = c.waiters[token]
	c.waiters[token] = w
	return w, nil
}

func (c *Client) unlisten(token string, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first := c.waiters[token]; first != w {
		for first.next != w {
			first = first.next
		}
		first.next = w.next
	} else if w.next != nil {
		c.waiters[token] = w.next
	} else {
		delete(c.waiters, token)
	}
	select {
	case <-w.event: // came too late
	default:
	}
	c.spareWaiters, w.next = w, c.spareWaiters
	c.notifyIdle()
}

// tell gives a waiter an event, instead of one that it has not taken yet. A
// question to ask again does not push a grant aside. The caller holds c.mu.
func (w *waiter) notify(e driver.Event) {
	select {
	case old := <-w.event:
		if old.Kind == driver.EventGranted && e.Kind != driver.EventGranted {
			e = old
		}
	default:
	}
	w.event <- e
}

// watch listens to the store for as long as the client lives.
func (c *Client) watch() {
	for {
		err := c.store.Watch(c.life, c.id, c.handleEvent)
		if c.life.Err() != nil {
			return
		}
		c.handleEvent(driver.Event{Kind: driver.EventDisconnected, Err: err})
		if !pause(c.life, 10*time.Second) {
			return
		}
	}
}

// hear takes one event of the store.
func (c *Client) handleEvent(e driver.Event) {
	c.mu.Lock()
	back := false
	var broken leaseEnd
	switch e.Kind {
	case driver.EventRevoked:
		broken = c.revokedLease(e)
	case driver.EventGranted, driver.EventRetry:
		for w := c.waiters[e.Token]; w != nil; w = w.next {
			w.notify(e)
		}
	case driver.EventConnected, driver.EventDisconnected:
		before := c.events
		c.events = eventsFlowing
		if e.Kind == driver.EventDisconnected {
			c.events = eventsStopped
		}
		if c.events != before && (c.events == eventsStopped || before == eventsStopped) {
			c.queueDegraded(e.Err)
		}
		back = e.Kind == driver.EventConnected && before != eventsUnknown
		c.retryWaiters()
	case driver.EventFailover:
		back = true
		c.retryWaiters()
	}
	if back {
		c.reconnects.request(c.now()) // the store may have forgotten the leases
		c.wakeRenewer()
	}
	c.mu.Unlock()
	broken.notify()
}

// queueDegraded queues the hook for events that have stopped, or flow again. The caller
// holds c.mu.
func (c *Client) queueDegraded(err error) {
	if hooks := c.defaults.hooks; hooks != nil && hooks.Degraded != nil {
		c.hooks.add(false, func() { hooks.Degraded(Degraded{Err: err}) })
	}
}

// lookAgain makes all waiters ask. The caller holds c.mu.
func (c *Client) retryWaiters() {
	for _, first := range c.waiters {
		for w := first; w != nil; w = w.next {
			w.notify(driver.Event{Kind: driver.EventRetry})
		}
	}
}

// A call is one Lock on its way.
type call struct {
	c               *Client
	ctx             context.Context
	settings        settings
	request         driver.AcquireRequest
	begin           time.Duration
	sent            time.Duration       // when the last question was sent
	reply           driver.AcquireReply // to the last question that was answered
	replied         bool                // there is one
	acquired        Acquired            // what the hook is told of the lease
	waiting         chan struct{}       // closed when the Waiting hook has returned; nil if it was not called
	failed          time.Duration       // since when no question was answered, or zero
	poll            pollInterval        // while the store cannot tell of grants
	unansweredUntil time.Time           // an acquire without an answer may arrive at the store until then
}

// How acquire goes about it: as the settings say, or once whatever they say.
const (
	queueing = false
	tryOnce  = true
)

// A want is what a call asks for: one name, in part or alone, or several alone.
type lockSpec struct {
	name          string
	with          []string
	weight, limit int
}

// alone wants a name to itself.
func exclusive(name string) lockSpec { return lockSpec{name: name, weight: 1, limit: 1} }

// acquire takes what is wanted, or queues for it.
func (c *Client) acquire(ctx context.Context, w lockSpec, set settings, once bool) (*Lease, error) {
	if err := set.check(w.name, w.with...); err != nil {
		return nil, err
	}
	if once {
		set.wait, set.attempts = 0, 0
	}
	if h := leaseIn(ctx, c, w); h != nil {
		return h.reenter(w, set.reentrant)
	}
	if err := set.checkOnce(w.name, once); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("dibs: acquire %q: %w", w.name, context.Cause(ctx))
	}
	q := call{c: c, ctx: ctx, settings: set, begin: c.now()}
	q.request = c.newRequest(w, &set)
	if err := q.awaitCancelled(); err != nil {
		return nil, err
	}
	lease, err := q.acquire()
	// From here on Close does not wait for this call, so that a hook may call it.
	if q.waiting != nil {
		<-q.waiting
	}
	if lease != nil && set.hooks != nil && !set.partOfMulti {
		lease.h.callAcquiredHook(q.acquired)
	}
	return lease, err
}

// take acquires, and leaves nothing behind if it cannot.
func (q *call) acquire() (*Lease, error) {
	w, err := q.c.listen(q.request.Token)
	if err != nil {
		return nil, err
	}
	defer q.c.unlisten(q.request.Token, w)
	lease, err := q.run(w)
	if lease == nil {
		q.cancel()
	}
	return lease, err
}

func (q *call) run(w *waiter) (*Lease, error) {
	if q.settings.attempts > 0 {
		return q.attempt()
	}
	return q.wait(w)
}

// undo removes what a call without a lease may have left at the store: a queue entry,
// the lock itself, or a try that was not answered and arrives later.
func (q *call) cancel() {
	if q.replied && (q.request.Queue || q.reply.Held) || !q.unansweredUntil.IsZero() {
		q.c.cancel(q.request, q.ownToken(), q.unansweredUntil)
	}
}

// ownToken reports whether the caller has chosen the token, and may use it again.
func (q *call) ownToken() bool { return q.settings.token != "" }

func (c *Client) newRequest(w lockSpec, set *settings) driver.AcquireRequest {
	seq := c.seq.Add(1)
	ttl := max(set.ttl, set.minHold) // so that MinHold outlives a crash
	if set.maxHold > 0 {
		ttl = min(ttl, set.maxHold)
	}
	claim := driver.AcquireRequest{
		Name: w.name, With: w.with, Token: set.token, Client: c.id, Seq: seq,
		TTL: ttl, MinHold: set.minHold, Weight: w.weight, Limit: w.limit,
	}
	claim.Queue = set.attempts == 0 && set.wait != 0
	if claim.Token == "" {
		claim.Token = newToken(c.id, set.label)
	}
	return claim
}

// attempt tries a fixed number of times without queueing.
func (q *call) attempt() (*Lease, error) {
	var err error
	for i := 0; i < q.settings.attempts; i++ {
		if i > 0 && !q.c.sleep(q.ctx, q.settings.every) {
			err = q.ended()
			break
		}
		var l *Lease
		if l, err = q.try(); l != nil {
			return l, nil
		}
		if refused(err) || permanent(err) {
			break
		}
	}
	return nil, q.withContextCause(err)
}

// try asks once, and returns the lease or why there is none.
func (q *call) try() (*Lease, error) {
	if err := q.tryAcquire(); err != nil {
		return nil, err
	}
	if !q.reply.Held {
		return nil, q.busy()
	}
	return q.granted(q.sent, q.request.TTL, nil)
}

// ended says why a call is over before its time.
func (q *call) ended() error {
	if q.ctx.Err() == nil {
		return ErrClosed
	}
	return q.busy()
}

// sleep waits between two attempts.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-c.closing:
	}
	return false
}

// wait asks, and waits for its turn.
func (q *call) wait(w *waiter) (*Lease, error) {
	var again, limit timer
	defer again.stop()
	defer limit.stop()
	for {
		l, err := q.try()
		busy := errors.Is(err, ErrBusy)
		switch {
		case l != nil:
			return l, nil
		case !busy && !q.keepsWaiting(err):
			return nil, q.withContextCause(err)
		case !q.request.Queue:
			return nil, err
		}
		if busy {
			err = nil
		}
		q.callQueuedHook()
		if q.settings.wait >= 0 && limit.c == nil {
			limit.set(q.settings.wait - (q.c.now() - q.begin))
		}
		again.set(q.retryDelay(err))
		if l, err = q.await(w, again.c, limit.c); l != nil || err != nil {
			return l, err
		}
	}
}

// sit waits until the lease is granted, the wait is over (an error), or it is
// time to ask again (neither).
func (q *call) await(w *waiter, again, limit <-chan time.Time) (*Lease, error) {
	for {
		var e driver.Event
		select {
		case e = <-w.event: // what has come counts, though the wait may be over by now
		default:
			select {
			case e = <-w.event:
			case <-again:
				return nil, nil
			case <-limit:
				return nil, q.busy()
			case <-q.ctx.Done():
				return nil, q.busy()
			case <-q.c.closing:
				return nil, ErrClosed
			}
		}
		if e.Kind != driver.EventGranted {
			return nil, nil
		}
		// The grant is older than its message, but not older than the last
		// answer that said "not yet": not before its question was sent. The
		// ticket shows that it is that place which came up, and not one that
		// was lost and taken anew since.
		if e.Ticket == q.reply.Ticket && e.Round == q.reply.Round && q.request.Queue {
			return q.acceptGrant(e)
		}
	}
}

// pushed takes the lease that the store handed on. If too little is left of the
// hand-off's TTL, neither a lease nor an error: asking again confirms it.
func (q *call) acceptGrant(e driver.Event) (*Lease, error) {
	ttl := q.request.HandoffTTL()
	if q.sent+ttl-margin(ttl)-q.c.checkClock() < ttl/4 {
		return nil, nil
	}
	q.reply.Fence = e.Fence
	l, err := q.granted(q.sent, ttl, &e)
	if errors.Is(err, errLate) {
		return nil, nil
	}
	return l, err
}

var errLate = errors.New("the store's answer came when the lease was over: its TTL is too short for this network")

// ask puts one question, again while its outcome is unknown and the time for one
// operation is not over.
func (q *call) tryAcquire() error {
	timeout := q.settings.timeout
	if q.replied && q.settings.wait > 0 {
		timeout = min(timeout, max(q.begin+q.settings.wait-q.c.now(), time.Millisecond))
	}
	end := time.Now().Add(timeout)
	for try := 0; ; try++ {
		sent := q.c.checkClock()
		q.request.Until = q.c.rtt.attemptDeadline(end)
		if deadline, ok := q.ctx.Deadline(); ok && deadline.Before(q.request.Until) {
			q.request.Until = deadline
		}
		answer, err := q.c.store.Acquire(q.ctx, q.request)
		q.c.observeHealth(q.ctx, err)
		if err == nil || !time.Now().Before(q.request.Until) {
			q.c.rtt.observe(q.c.now() - sent)
		}
		if err == nil {
			q.sent, q.reply, q.replied, q.failed = sent, answer, true, 0
			return nil
		}
		if refused(err) || permanent(err) {
			return err
		}
		q.unansweredUntil = later(q.unansweredUntil, q.request.Until)
		if q.ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		// A try that has hardly any time would say so, and not what is wrong.
		if d := backoff(try); time.Until(end) <= 2*d || !pause(q.ctx, d) || !time.Now().Before(end) {
			return err
		}
	}
}

// patient reports whether a waiter goes on after a failure. The first question
// must be answered; after that an outage costs a waiter its place at most, unless
// the store refuses for so long that the place is gone anyway.
func (q *call) keepsWaiting(err error) bool {
	if !q.replied || permanent(err) || q.ctx.Err() != nil || !q.request.Queue {
		return false
	}
	if q.failed == 0 {
		q.failed = q.c.now()
	}
	return !refused(err) || q.c.now()-q.failed < driver.WaiterTTL
}

// lastTurn is how long after the holder's end the last waiters ask.
const lastRetry = 100 * time.Millisecond

// recheck is how long to wait before asking again.
func (q *call) retryDelay(failed error) time.Duration {
	if failed != nil {
		return 50 * time.Millisecond
	}
	q.c.mu.Lock()
	pushing := q.c.events == eventsFlowing
	q.c.mu.Unlock()
	turn := max(q.reply.Position, 1)
	d := min(heartbeat, max(q.request.TTL/2, 50*time.Millisecond))
	if !pushing {
		d = min(d, q.poll.next(q.reply, q.c.now()-q.sent))
	}
	if left := q.reply.Remaining; left >= 0 {
		// The store rounds down to 1 ms. The first waiter asks first; one far behind asks
		// not much later, because all those before it may be dead.
		d = min(d, left+min(time.Duration(2*turn)*time.Millisecond, lastRetry))
	}
	return d
}

// granted makes the lease, whose ttl began not before sent, unless that is over
// already.
func (q *call) granted(sent, ttl time.Duration, push *driver.Event) (*Lease, error) {
	c := q.c
	h := &leaseState{
		c: c, parent: q.ctx, name: q.request.Name, token: q.request.Token, fence: q.reply.Fence, hooks: q.settings.hooks, timeout: q.settings.timeout,
		ownToken: q.ownToken(), weight: q.request.Weight, limit: q.request.Limit,
		acquiredAt: sent, maxHoldUntil: never, ttl: min(q.request.TTL, q.settings.ttl), index: -1, handles: 1,
	}
	for _, name := range q.request.With {
		h.moreNames = append(h.moreNames, fencedName{name, q.reply.Fence})
	}
	if !q.unansweredUntil.IsZero() {
		h.unanswered = &unansweredTry{request: q.request, until: q.unansweredUntil}
	}
	if q.settings.maxHold > 0 {
		h.maxHoldUntil = sent + q.settings.maxHold
	}
	if q.settings.minHold > 0 {
		h.minHoldUntil = c.now() + q.settings.minHold
	}
	h.first.h = h
	h.initTimes(q.settings.noRenew, sent, ttl, ttl < q.request.TTL)

	now := c.now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	if now >= h.deadline {
		c.mu.Unlock()
		return nil, &UnavailableError{Op: "acquire", Name: h.name, Cause: errLate}
	}
	c.schedule(h)
	c.mu.Unlock()
	q.acquired = Acquired{Name: h.name, Token: h.token, Fence: q.reply.Fence, Waited: now - q.begin}
	if push != nil {
		q.acquired.Pushed, q.acquired.Handoff = true, push.Age
	}
	return &h.first, nil
}

// begin sets the times of a new lease whose first ttl began not before sent. lift says
// that it is shorter than what was claimed.
func (h *leaseState) initTimes(noRenew bool, sent, ttl time.Duration, lift bool) {
	h.rule = renewed
	if noRenew {
		h.rule = fixed
	}
	h.extendDeadline(sent, ttl)
	if lift || h.renewAt != never {
		// Off the critical path, and not at all for work shorter than that. After
		// a long wait sent is long ago, but the lease is no reason to hurry.
		now := h.c.now()
		h.renewAt = now + max(h.deadline-now, 0)/3
	}
	if noRenew && lift {
		h.rule = extendOnce
	}
}

func (q *call) busy() error {
	name := q.request.Name
	if q.reply.Name != "" {
		name = q.reply.Name
	}
	return &BusyError{
		Name: name, Holder: q.reply.Holder, Remaining: q.reply.Remaining,
		Ahead: max(q.reply.Position-1, 0), Cause: cause(q.ctx),
	}
}

// explain adds to a failure that the context has ended too, or takes the place
// of one that only says so.
func (q *call) withContextCause(err error) error {
	ended := cause(q.ctx)
	if ended == nil || refused(err) || permanent(err) {
		return err
	}
	if q.replied {
		return q.busy()
	}
	if errors.Is(err, ended) {
		return err
	}
	return &UnavailableError{Op: "acquire", Name: q.request.Name, Cause: errors.Join(ended, rootCause(err))}
}

// tellWaiting calls the hook, once, beside the call: it may be slow, and the call has to
// keep its place in the queue.
func (q *call) callQueuedHook() {
	if q.waiting != nil || q.settings.hooks == nil || q.settings.hooks.Waiting == nil {
		return
	}
	returned := make(chan struct{})
	q.waiting = returned
	hook, w := q.settings.hooks.Waiting, Waiting{
		Name: q.request.Name, Token: q.request.Token, Holder: q.reply.Holder, Position: q.reply.Position, Ticket: q.reply.Ticket,
	}
	go func() {
		defer close(returned)
		hook(w)
	}()
}

// A timer is a time.Timer that is made when it is first needed.
type timer struct {
	t *time.Timer
	c <-chan time.Time
}

func (t *timer) set(d time.Duration) {
	if t.t == nil {
		t.t = time.NewTimer(d)
		t.c = t.t.C
		return
	}
	t.t.Reset(d)
}

func (t *timer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
}

// pause sleeps for d, or returns false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is the pause after the try-th failure: 1, 2, 4 … 64 ms.
func backoff(try int) time.Duration { return time.Millisecond << min(try, 6) }
