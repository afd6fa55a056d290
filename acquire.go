package dibs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An acquire sends a request to the store. If the name is not free, it joins the store's
// wait queue, until a notification arrives or the next heartbeat is due. The request is
// idempotent. So the same request is also the heartbeat, and detects a grant whose
// notification was lost.

const (
	heartbeat   = 2400 * time.Millisecond // the longest time between two heartbeats; less than half of driver.WaiterTTL
	heartbeatAt = 50 * time.Millisecond   // waiters far back send theirs at multiples of this time
	farBack     = 64                      // the position in the queue after which a waiter is far back
	cancelGrace = time.Second             // how long after a TTL a cancel goes on, for requests that arrive late
	clockSlack  = 100 * time.Millisecond  // between the clocks of the store and this process
)

// A call is one acquire in progress.
type call struct {
	c               *Client
	ctx             context.Context
	parent          context.Context // of the caller; ctx may have more values, of a hook
	settings        settings
	request         driver.AcquireRequest
	begin           time.Duration
	sent            time.Duration       // when the last answered request was sent
	reply           driver.AcquireReply // to the last request that was answered
	replied         bool                // reply is set
	took            time.Duration       // from the beginning to the outcome
	notified        bool                // the lease came from a hand-off, with a notification
	handoff         time.Duration       // how long ago that was requested; zero if unknown
	hooks           *hookCall           // nil if there are no hooks
	queuedHook      <-chan struct{}     // closed when the Queued hooks have returned; nil if they were not called
	failed          time.Duration       // since when no request was answered, or zero
	poll            pollInterval        // while the store cannot notify the waiter
	unansweredUntil time.Time           // an unanswered acquire may arrive at the store until then
	firstFence      uint64              // of those that belong to a grant by hand-off; zero: only its own
}

// Modes of acquire: queueing follows the options, tryOnce overrides them.
const (
	queueing = false
	tryOnce  = true
)

// A lockSpec is what a call requests: one name, shared or exclusive, or several names,
// all exclusive.
type lockSpec struct {
	kind          Kind
	name          string
	with          []string
	weight, limit int
}

// exclusive requests one name exclusively.
func exclusive(kind Kind, name string) lockSpec {
	return lockSpec{kind: kind, name: name, weight: 1, limit: 1}
}

// acquire validates a request, acquires what it requests, and queues for it if it has to.
func (c *Client) acquire(ctx context.Context, w lockSpec, set settings, once bool) (*Lease, error) {
	if err := cmp.Or(c.check(), set.check(w.name, w.with...), set.checkOnce(w.name, once)); err != nil {
		return nil, err
	}
	return c.acquireValid(ctx, w, set, once)
}

// acquireValid is acquire for a request that was validated.
func (c *Client) acquireValid(ctx context.Context, w lockSpec, set settings, once bool) (*Lease, error) {
	if once {
		set.wait, set.attempts = 0, 0
	}
	if h := leaseIn(ctx, c, w); h != nil {
		return h.reenter(w, set.reentrant)
	}
	if set.choosesToken() {
		names := append([]string{w.name}, w.with...)
		return c.acquireOwn(names, set, func(set settings) (*Lease, error) { return c.acquireNew(ctx, w, set, once) })
	}
	return c.acquireNew(ctx, w, set, once)
}

// acquireNew acquires a lease that is not part of another one.
func (c *Client) acquireNew(ctx context.Context, w lockSpec, set settings, once bool) (*Lease, error) {
	q := call{c: c, ctx: ctx, parent: ctx, settings: set, begin: c.clock.now(), hooks: set.hookCall}
	if q.hooks == nil {
		q.hooks = startHooks(ctx, w, &set, once)
	}
	if q.hooks != nil {
		q.ctx, q.parent = q.hooks.context(), q.hooks.parent
	}
	lease, err := q.execute(w)
	// From here on Close does not wait for this call, so that a hook may call Close.
	if q.queuedHook != nil {
		<-q.queuedHook
	}
	if q.hooks != nil && set.hookCall == nil {
		q.hooks.callAcquireEnd(q.acquireEnd(lease, err), lease)
	}
	return lease, err
}

// execute sends the requests of the call, and returns the lease or the error.
func (q *call) execute(w lockSpec) (*Lease, error) {
	if q.ctx.Err() != nil {
		return nil, fmt.Errorf("dibs: acquire %q: %w", w.name, context.Cause(q.ctx))
	}
	q.request = q.c.newRequest(w, &q.settings)
	if err := q.awaitCancelled(); err != nil {
		return nil, err
	}
	lease, err := q.acquire()
	q.took = q.c.clock.now() - q.begin
	return lease, err
}

// acquireEnd returns the event of the call's end.
func (q *call) acquireEnd(lease *Lease, err error) AcquireEnd {
	e := AcquireEnd{LockInfo: q.hooks.lockInfo(q.request.Token), Err: err, Waited: q.took, Queued: q.hooks.queued}
	if lease != nil {
		e.Fence, e.TTL, e.Notified, e.Handoff = q.reply.Fence, q.request.TTL, q.notified, q.handoff
		e.FirstFence = cmp.Or(q.firstFence, e.Fence)
	}
	return e
}

// acquire runs the call, and leaves nothing at the store if it fails.
func (q *call) acquire() (*Lease, error) {
	if !q.c.begin() {
		return nil, ErrClosed
	}
	defer q.c.work.done()
	w := q.c.inbox.add(q.request.Token)
	defer q.c.inbox.remove(q.request.Token, w)
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

// cancel removes what a call without a lease may have left at the store: a queue entry,
// the lock itself, or an unanswered request that arrives later.
func (q *call) cancel() {
	if q.replied && (q.request.Queue || q.reply.Held) || !q.unansweredUntil.IsZero() {
		q.c.cancel(q.ctx, q.request, q.ownToken(), q.unansweredUntil)
	}
}

// ownToken reports whether the caller has chosen the token and may use it again.
func (q *call) ownToken() bool { return q.settings.token != "" }

func (c *Client) newRequest(w lockSpec, set *settings) driver.AcquireRequest {
	seq := c.seq.Add(1)
	ttl := max(set.ttl, set.minHold) // so that MinHold outlives a crash
	if set.maxHold > 0 {
		ttl = min(ttl, set.maxHold)
	}
	request := driver.AcquireRequest{
		Name: w.name, With: w.with, Token: set.token, Client: c.id, Seq: seq,
		TTL: ttl, MinHold: set.minHold, Weight: w.weight, Limit: w.limit,
		Late: len(w.with) == 0 && c.lateness.isLate(c.clock.now()),
	}
	request.Queue = set.attempts == 0 && set.wait != 0
	if request.Token == "" {
		request.Token = newToken(c.id, w, set.label)
	}
	return request
}

// attempt tries a fixed number of times without queueing.
func (q *call) attempt() (*Lease, error) {
	var err error
	for i := 0; i < q.settings.attempts; i++ {
		if i > 0 && !q.c.sleep(q.ctx, q.settings.every) {
			err = q.abortErr()
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

// try sends one request, and returns the lease or the reason why there is none.
func (q *call) try() (*Lease, error) {
	if err := q.tryAcquire(); err != nil {
		return nil, err
	}
	if !q.reply.Held {
		return nil, q.busy()
	}
	return q.granted(q.sent, q.request.TTL, nil)
}

// abortErr returns why a call ended before its last attempt.
func (q *call) abortErr() error {
	if q.ctx.Err() == nil {
		return ErrClosed
	}
	return q.busy()
}

// sleep waits for d between two attempts, or returns false if ctx or the client ends.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-c.work.closing:
	}
	return false
}

// wait sends requests and waits in the queue until the lease is granted.
func (q *call) wait(w *waiter) (*Lease, error) {
	if q.request.Queue && q.c.inbox.currentFlow() == eventsUnknown {
		if l, err := q.tryBeforeEvents(w); l != nil || err != nil {
			return l, err
		}
	}
	var retry, limit timer
	defer retry.stop()
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
			limit.set(q.settings.wait - (q.c.clock.now() - q.begin))
		}
		retry.set(q.retryDelay(err))
		if l, err = q.await(w, retry.c, limit.c); l != nil || err != nil {
			return l, err
		}
	}
}

// subscriptionWait is how long a call waits for the subscription of its new client.
const subscriptionWait = time.Second

// tryBeforeEvents sends the first request of a new client, which cannot be notified so far.
// The request does not queue: a release would pass over the queue entry of a client without
// a subscription, and serve later waiters first. If the name is not free, the call waits
// until the client is subscribed, or until the store has none. It returns neither a lease nor
// an error if the call may queue now.
func (q *call) tryBeforeEvents(w *waiter) (*Lease, error) {
	q.request.Queue = false
	l, err := q.try()
	q.request.Queue = true
	if l != nil {
		return l, nil
	}
	if !errors.Is(err, ErrBusy) {
		return nil, q.withContextCause(err)
	}
	var end, limit timer
	defer end.stop()
	defer limit.stop()
	end.set(subscriptionWait)
	if q.settings.wait >= 0 {
		limit.set(q.settings.wait - (q.c.clock.now() - q.begin))
	}
	if q.c.inbox.currentFlow() != eventsUnknown {
		return nil, nil
	}
	return q.await(w, end.c, limit.c) // an event, whichever, means that the client is subscribed
}

// await waits until the lease is granted, the waiting is over (an error), or the next
// request is due (neither).
func (q *call) await(w *waiter, retry, limit <-chan time.Time) (*Lease, error) {
	for {
		var e driver.Event
		select {
		case e = <-w.event: // an event that has arrived counts, even if the waiting is over by now
		default:
			select {
			case e = <-w.event:
			case <-retry:
				return nil, nil
			case <-limit:
				return nil, q.busy()
			case <-q.ctx.Done():
				return nil, q.busy()
			case <-q.c.work.closing:
				return nil, ErrClosed
			}
		}
		if e.Kind != driver.EventGranted {
			return nil, nil
		}
		// The grant is older than its notification, but not older than the request that
		// was last answered "not granted". So the lease is counted from the sending of
		// that request. Ticket and fence show that the grant is for the current queue
		// entry, not for an earlier one that was lost and replaced.
		if e.Ticket == q.reply.Ticket && e.Fence > q.reply.Fence && q.request.Queue {
			return q.acceptGrant(e)
		}
	}
}

// acceptGrant makes a lease of a grant by hand-off. If too little of the hand-off TTL is
// left, it returns neither a lease nor an error: the next request confirms the grant.
func (q *call) acceptGrant(e driver.Event) (*Lease, error) {
	ttl := q.request.HandoffTTL()
	if q.sent+ttl-margin(ttl)-q.c.clock.check() < ttl/4 {
		return nil, nil
	}
	q.reply.Fence = e.Fence
	l, err := q.granted(q.sent, ttl, &e)
	if errors.Is(err, errLate) {
		return nil, nil
	}
	if e.Fences > 0 {
		q.firstFence = e.Fence - e.Fences + 1
	}
	return l, err
}

var errLate = errors.New("the store answered after the lease had expired: use a longer TTL on this network")

// tryAcquire sends one request. It repeats it while the outcome is unknown and the
// operation timeout has not passed.
func (q *call) tryAcquire() error {
	timeout := q.settings.timeout
	if q.replied && q.settings.wait > 0 {
		timeout = min(timeout, max(sum(q.begin, q.settings.wait)-q.c.clock.now(), time.Millisecond))
	}
	do := func(a attempt) error {
		q.request.Until = a.until
		sent := time.Now()
		reply, err := q.c.store.Acquire(q.ctx, q.request)
		switch {
		case err == nil:
			q.sent, q.reply, q.replied, q.failed = a.sent, reply, true, 0
			q.request.Ticket, q.request.Confirmed = max(q.request.Ticket, reply.Ticket), sent
		case !hasOutcome(err) && !unsent(err):
			q.unansweredUntil = later(q.unansweredUntil, a.until)
		}
		return err
	}
	end := time.Now().Add(timeout)
	if q.replied {
		return q.c.repeat(q.ctx, end, do)
	}
	err := q.c.retry(q.ctx, end, do) // not through a variable, which would allocate
	for n := 1; n < crowded && q.isCrowdedOut(err); n++ {
		err = q.c.retry(q.ctx, time.Now().Add(timeout), do)
	}
	return err
}

// crowded is how many operation timeouts a first request may wait for its turn in this process.
const crowded = 10

// isCrowdedOut reports whether to send the first request again that was not sent in time. If many calls
// begin at once, the last ones have to wait for more than one timeout.
func (q *call) isCrowdedOut(err error) bool {
	waits := q.settings.attempts == 0 && (q.settings.wait < 0 || q.c.clock.now()-q.begin < q.settings.wait)
	return waits && unsentHere(err) && q.ctx.Err() == nil
}

// keepsWaiting reports whether a waiter continues after a failure. Its first request must be
// answered. After that, an outage costs a waiter at most its queue position. A store that
// rejects requests, for instance because its memory is full, is an outage, too: somebody has to
// mend it, and the wait has a limit of its own.
func (q *call) keepsWaiting(err error) bool {
	if !q.replied || permanent(err) || q.ctx.Err() != nil || !q.request.Queue {
		return false
	}
	if q.failed == 0 {
		q.failed = q.c.clock.now()
	}
	return true
}

// lastRetry is how long after the holder's expiry the last waiters retry.
const lastRetry = 100 * time.Millisecond

// retryDelay returns how long to wait before the next request.
func (q *call) retryDelay(failed error) time.Duration {
	if failed != nil {
		failing := q.c.clock.now() - q.failed
		d := min(max(failing/2, 50*time.Millisecond), time.Second)
		// Many clients have failed at the same moment.
		return d*3/4 + time.Duration(jitter(q.request.Name, q.c.clock.now())*float64(d/2))
	}
	position := max(q.reply.Position, 1)
	d := min(heartbeat, max(q.request.TTL/2, 50*time.Millisecond))
	polls := q.reply.Poll > 0 || q.c.inbox.currentFlow() != eventsFlowing
	if polls {
		d = min(d, q.poll.next(q.reply, q.c.clock.now()-q.sent))
	}
	if left := q.reply.Remaining; left >= 0 {
		// The store rounds down to 1 ms. The first waiter retries first. Waiters far
		// behind retry only a little later, because all those before them may be dead.
		d = min(d, left+min(time.Duration(2*position)*time.Millisecond, lastRetry))
	}
	if polls {
		return q.c.polls.delay(q.c.clock.now(), d)
	}
	if position > farBack && d > 2*heartbeatAt {
		d -= (q.c.clock.now() + d) % heartbeatAt // so that many are sent together, and the store serves them in one call
	}
	return d
}

// granted makes the lease, unless it has expired already. Its TTL began at sent or later.
func (q *call) granted(sent, ttl time.Duration, handoff *driver.Event) (*Lease, error) {
	c := q.c
	h := &lease{
		c: c, parent: q.parent, hooks: q.hooks.forLease(), ownToken: q.ownToken(), handles: 1,
		leaseState: leaseState{
			name: q.request.Name, token: q.request.Token, fence: q.reply.Fence, weight: int32(q.request.Weight), limit: int32(q.request.Limit),
			ttl: min(q.request.TTL, q.settings.ttl),
		},
	}
	h.first.h = h
	for _, name := range q.request.With {
		x := h.changeExtra()
		x.moreNames = append(x.moreNames, fencedName{name, q.reply.Fence})
	}
	if !q.unansweredUntil.IsZero() {
		h.changeExtra().unanswered = &unansweredTry{request: q.request, until: q.unansweredUntil}
	}
	if q.settings.timeout != c.defaults.timeout {
		h.changeExtra().timeout = q.settings.timeout
	}
	now := c.clock.now()
	h.limitHold(now, q.settings.minHold, sent, q.settings.maxHold)
	h.begin(q.settings.noRenew, now, sent, ttl, ttl < q.request.TTL, jitter(q.request.Name, now))
	if h.isOver(now) {
		return nil, &UnavailableError{Op: "acquire", Name: h.name, Cause: errLate}
	}
	if q.hooks != nil {
		q.hooks.heldSince = now
	}
	if err := h.update(func(*leaseState) {}); err != nil {
		return nil, err
	}
	if handoff != nil {
		q.notified, q.handoff = true, handoff.Age
	}
	return &h.first, nil
}

func (q *call) busy() error {
	name := q.request.Name
	if q.reply.Name != "" {
		name = q.reply.Name
	}
	return &BusyError{
		Name: name, Holder: q.reply.Holder, Reserved: q.reply.Reserved, Remaining: q.reply.Remaining,
		Ahead: max(q.reply.Position-1, 0), Cause: cause(q.ctx),
	}
}

// withContextCause joins the context's cause to err, or replaces err if err only reports
// the cancellation.
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

// callQueuedHook calls the Queued hooks, once for each call of a user.
func (q *call) callQueuedHook() {
	if q.hooks == nil || q.hooks.queued {
		return
	}
	q.hooks.queued = true
	q.queuedHook = q.hooks.callQueued(Queued{
		LockInfo: q.hooks.lockInfo(q.request.Token), Holder: q.reply.Holder, Position: q.reply.Position, Ticket: q.reply.Ticket,
		Reserved: q.reply.Reserved, Remaining: q.reply.Remaining,
	})
}

// A timer is a time.Timer that is created when it is first needed.
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
