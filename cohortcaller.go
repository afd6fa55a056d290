package dibs

import (
	"context"
	"fmt"
	"time"
)

// A caller is a call that gets its lease from a cohort. The lock of the cohort guards the
// fields from turn on.
type caller struct {
	c        *Client
	co       *cohort
	ctx      context.Context
	parent   context.Context // of the caller; ctx may have more values, of a hook
	settings settings
	hooks    *hookCall
	begin    time.Duration

	queuedHook <-chan struct{} // closed when the Queued hooks have returned; nil if they were not called

	turn           chan struct{} // signals a change of the fields below; nil until the call waits
	store          *lease        // the store lease that the call may use; nil: it waits
	fence          uint64
	err            error // why there will be no store lease
	contended      bool  // it knows that others held the lock, so an outage does not end the waiting
	overdue        bool  // its time to wait is over; it waits only to know whether others hold the lock
	listed         bool
	previous, next *caller
}

// acquireInCohort is acquire for a call that uses a cohort.
func (c *Client) acquireInCohort(ctx context.Context, w lockSpec, set settings) (*Lease, error) {
	q := &caller{c: c, ctx: ctx, parent: ctx, settings: set, begin: c.clock.check()}
	q.hooks = startHooks(ctx, w, &q.settings, set.wait == 0)
	if q.hooks == nil {
		return q.acquire(w)
	}
	q.ctx = q.hooks.context()
	lease, err := q.acquire(w)
	if q.queuedHook != nil {
		<-q.queuedHook
	}
	q.hooks.callAcquireEnd(q.acquireEnd(lease, err), lease)
	return lease, err
}

// acquireEnd returns the event of the call's end.
func (q *caller) acquireEnd(l *Lease, err error) AcquireEnd {
	e := AcquireEnd{LockInfo: q.hooks.info, Err: err, Waited: q.c.clock.now() - q.begin, Queued: q.hooks.queued}
	if l != nil {
		origin := l.h.readExtra().origin
		e.Token, e.Fence, e.TTL, e.Notified, e.Handoff = l.h.token, l.Fence(), l.h.ttl, origin.notified, origin.handoff
	}
	return e
}

func (q *caller) acquire(w lockSpec) (*Lease, error) {
	if q.ctx.Err() != nil {
		return nil, fmt.Errorf("dibs: acquire %q: %w", w.name, context.Cause(q.ctx))
	}
	if !q.c.begin() {
		return nil, ErrClosed
	}
	defer q.c.work.done()
	q.co = q.c.cohorts.locked(q.c, cohortKey{name: w.name, ttl: q.settings.ttl, linger: min(q.settings.linger, q.settings.ttl/3), batch: q.settings.batch})
	if q.isTry() {
		q.co.releaseLater(q.co.advance(q.begin)) // ends a store lease that has expired
		if !q.co.isIdle() {
			err := q.busyBeforeTry()
			if err != nil {
				return nil, err
			}
			return q.acquireDirectly(w)
		}
	}
	h, err := q.join()
	if err != nil {
		return nil, err
	}
	if q.settings.maxHold > 0 {
		if err := h.update(func(*leaseState) {}); err != nil { // it schedules the end of MaxHold
			_ = h.first.Unlock()
			return nil, err
		}
	}
	return &h.first, nil
}

func (q *caller) isTry() bool { return q.settings.wait == 0 }

// busyBeforeTry unlocks a cohort that has no lock for a call that tries once. It returns
// ErrBusy, or nil if only the store knows: the cohort has no store lease, and nobody in it
// waits for others.
func (q *caller) busyBeforeTry() error {
	defer q.co.mu.Unlock()
	q.co.removeIfUnused()
	if q.co.store == nil && !q.co.isWaiting() {
		return nil
	}
	return q.co.busy(q, nil)
}

// acquireDirectly acquires a lease of its own.
func (q *caller) acquireDirectly(w lockSpec) (*Lease, error) {
	set := q.settings
	set.batch, set.hookCall = 0, q.hooks
	return q.c.acquireValid(q.ctx, w, set, tryOnce)
}

// join adds the call to its cohort, which is locked, and waits until it has a lease, or
// until the waiting is over.
func (q *caller) join() (*lease, error) {
	co := q.co
	co.callers.add(q)
	release := co.advance(q.begin)
	h := co.receive(q, q.begin)
	if h == nil {
		q.turn = make(chan struct{}, 1)
	}
	co.mu.Unlock()
	co.releaseLater(release)
	if h != nil {
		return h, nil
	}
	return q.wait()
}

// wait waits until the cohort has a lease for the call, or until the waiting is over.
func (q *caller) wait() (*lease, error) {
	var limit timer
	defer limit.stop()
	if q.settings.wait >= 0 {
		limit.set(max(q.settings.wait, q.limitOfTry()) - (q.c.clock.now() - q.begin))
	}
	overdue, closed := false, false
	for {
		h, err := q.check(overdue, closed)
		if h != nil || err != nil {
			return h, err
		}
		select {
		case <-q.turn:
		case <-limit.c:
			overdue = true
		case <-q.ctx.Done():
		case <-q.c.work.closing:
			closed = true
		}
	}
}

// limitOfTry returns how long a call that tries once waits for a fence of an idle store
// lease.
func (q *caller) limitOfTry() time.Duration {
	if q.isTry() {
		return q.settings.timeout
	}
	return 0
}

// check returns a lease if the call has got one, an error if it must not wait longer, or
// neither. A lease that has arrived counts, even if the waiting is over by now.
func (q *caller) check(overdue, closed bool) (*lease, error) {
	co, now := q.co, q.c.clock.check()
	co.mu.Lock()
	h := co.receive(q, now)
	if h != nil || q.err != nil {
		co.mu.Unlock()
		return h, q.err
	}
	known := co.isContended()
	q.contended, q.overdue = q.contended || known, overdue
	var err error
	switch {
	case closed:
		err = ErrClosed
	case q.ctx.Err() != nil && !q.contended:
		err = &UnavailableError{Op: "acquire", Name: co.key.name, Cause: context.Cause(q.ctx)}
	case q.ctx.Err() != nil, overdue && q.contended, q.isTry() && co.store == nil: // it must be known once that others hold the lock, even after Wait
		err = co.busy(q, cause(q.ctx))
	}
	if err != nil {
		co.removeCaller(q)
		co.mu.Unlock()
		return nil, err
	}
	if known && q.hooks != nil && !q.hooks.queued {
		busy := co.busy(q, nil)
		queued := Queued{LockInfo: q.hooks.lockInfo(""), Holder: busy.Holder, Position: busy.Ahead + 1}
		q.hooks.queued = true
		defer func() { q.queuedHook = q.hooks.callQueued(queued) }()
	}
	co.mu.Unlock()
	return nil, nil
}

// signal makes a waiting call check again.
func (q *caller) signal() {
	if q.turn == nil {
		return
	}
	select {
	case q.turn <- struct{}{}:
	default:
	}
}

// A callerList is a list of callers, in the order in which they are served. To remove one
// takes constant time. The zero value is empty.
type callerList struct{ first, last *caller }

func (l *callerList) add(q *caller) {
	q.listed, q.previous, q.next = true, l.last, nil
	if l.last == nil {
		l.first = q
	} else {
		l.last.next = q
	}
	l.last = q
}

func (l *callerList) addFirst(q *caller) {
	q.listed, q.previous, q.next = true, nil, l.first
	if l.first == nil {
		l.last = q
	} else {
		l.first.previous = q
	}
	l.first = q
}

// remove removes a caller, if it is in the list.
func (l *callerList) remove(q *caller) {
	if !q.listed {
		return
	}
	if q.previous == nil {
		l.first = q.next
	} else {
		q.previous.next = q.next
	}
	if q.next == nil {
		l.last = q.previous
	} else {
		q.next.previous = q.previous
	}
	q.listed, q.previous, q.next = false, nil, nil
}

// before returns how many callers are served before this one.
func (l *callerList) before(q *caller) (n int) {
	for q = q.previous; q != nil; q = q.previous {
		n++
	}
	return n
}
