package cohort

import (
	"context"
	"math"
	"time"

	"github.com/dibslock/dibs"
)

// A caller is a call to Lock, and then its lease: a single struct, to save an allocation. The
// cohort's lock guards the fields from turn on, and the lease's tenure and fence until the call
// receives it.
type caller struct {
	c       *Cohort
	ctx     context.Context
	begin   time.Time
	wait    time.Duration // negative: until ctx ends
	timeout time.Duration
	closing <-chan struct{} // closed when the Client ends the call
	label   string
	lease   Lease

	turn           chan struct{} // signals a change; nil until the call waits
	err            error         // why there will be no lease
	received       bool          // the call received its lease
	contended      bool          // others were seen to hold the lock, so an outage does not end the waiting
	listed         bool
	ticket         uint64 // its place in the list
	previous, next *caller
}

func newCaller(ctx context.Context, c *Cohort, set dibs.CallSettings) *caller {
	q := &caller{c: c, ctx: ctx, begin: time.Now(), wait: set.Wait, timeout: set.Timeout, closing: set.Closing, label: set.Label}
	q.lease.call, q.lease.maxHold = q, set.MaxHold
	return q
}

// acquire waits until the call receives a lease, or until the waiting is over.
func (q *caller) acquire() (*Lease, error) {
	c := q.c
	c.mu.Lock()
	c.callers.add(q)
	c.signalWanted()
	release := c.advance(q.begin)
	has := q.receive()
	if !has {
		q.turn = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	c.releaseLater(release)
	if !has {
		if err := q.await(); err != nil {
			return nil, err
		}
	}
	q.lease.limitHold()
	return &q.lease, nil
}

// await waits until the call receives a lease, or until the waiting is over.
func (q *caller) await() error {
	var limit *time.Timer // nil while nothing limits the waiting: most calls allocate none
	defer func() {
		if limit != nil {
			limit.Stop()
		}
	}()
	var passed <-chan time.Time
	for {
		has, left, err := q.check()
		if has || err != nil {
			return err
		}
		switch {
		case left == unlimited:
			passed = nil
		case limit == nil:
			limit = time.NewTimer(left)
			passed = limit.C
		default:
			limit.Reset(left)
			passed = limit.C
		}
		select {
		case <-q.turn:
		case <-passed:
		case <-q.ctx.Done():
		case <-q.closing:
		}
	}
}

// unlimited is how long a call can wait when only its context limits it.
const unlimited = time.Duration(math.MaxInt64)

// check reports whether the call can use a lease, or returns an error if it must not wait longer.
// Otherwise it returns when to check again. An arrived lease counts, even if the waiting is over.
func (q *caller) check() (has bool, left time.Duration, err error) {
	c := q.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.receive() || q.err != nil {
		return q.err == nil, 0, q.err
	}
	q.contended = q.contended || c.isContended()
	waited := time.Since(q.begin)
	switch {
	case isClosed(q.closing):
		err = dibs.ErrClosed
	case q.ctx.Err() != nil && q.contended:
		err = c.busy(q, context.Cause(q.ctx))
	case q.ctx.Err() != nil:
		err = c.unavailable(context.Cause(q.ctx))
	case q.contended && q.wait >= 0 && waited >= q.wait:
		err = c.busy(q, nil)
	case !q.contended && waited >= q.timeout:
		err = c.unavailable(nil)
	}
	if err != nil {
		c.removeCaller(q)
		return false, 0, err
	}
	return false, q.left(waited), nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// left returns how long the call may wait before it must check again.
func (q *caller) left(waited time.Duration) time.Duration {
	switch {
	case !q.contended && (q.wait <= waited || q.timeout < q.wait): // Wait is over, or there is none
		return q.timeout - waited
	case q.wait < 0:
		return unlimited
	default:
		return q.wait - waited
	}
}

// mustKnowSoon reports whether the call can end before its request joins the wait queue.
func (q *caller) mustKnowSoon() bool { return !q.contended && 0 <= q.wait && q.wait < q.timeout }

// receive reports whether the call received its lease. If the store lease ended meanwhile, the call
// waits again, before all others. The caller must hold the lock.
func (q *caller) receive() bool {
	c := q.c
	if c.holder != q {
		return false
	}
	if t := q.lease.tenure; t.store.Err() != nil {
		c.leave(t)
		c.releaseLater(c.advance(time.Now()))
		return false
	}
	q.received = true
	return true
}

// fail ends the call with an error. It was removed from the list.
func (q *caller) fail(err error) {
	q.err = err
	q.signal()
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

// removeCaller removes a call that gave up. After the last call, it cancels the acquire of a store
// lease.
func (c *Cohort) removeCaller(q *caller) {
	c.callers.remove(q)
	if c.callers.first == nil && c.acquiring != nil {
		c.acquiring.cancel()
	}
}

// busy returns the error for a call that must not wait longer.
func (c *Cohort) busy(q *caller, cause error) *dibs.BusyError {
	e := &dibs.BusyError{Name: c.base.Name, Cause: cause}
	if q.listed {
		e.Ahead = int(q.ticket - c.callers.first.ticket)
	}
	switch a := c.acquiring; {
	case c.tenure != nil:
		e.Holder, e.Remaining = c.tenure.store.Token(), max(time.Until(c.tenure.store.Deadline()), 0)
	case a != nil && a.queued:
		e.Holder, e.Reserved, e.NeverExpires = a.busy.Holder, a.busy.Reserved, a.busy.NeverExpires
		e.Remaining = max(a.busy.Remaining-time.Since(a.at), 0)
		e.Ahead += max(a.busy.Ahead, 0)
	}
	return e
}

// unavailable returns the error for a call without a reply from the store.
func (c *Cohort) unavailable(cause error) error {
	switch {
	case cause != nil:
		return &dibs.UnavailableError{Op: "acquire", Name: c.base.Name, Cause: cause}
	case c.failure != nil:
		return c.failure
	}
	return &dibs.UnavailableError{Op: "acquire", Name: c.base.Name, Cause: errNoAnswer}
}

// A callerList is a list of callers, in the order in which they are served. Removing a caller takes
// constant time. The zero value is empty.
type callerList struct {
	first, last *caller
	tickets     uint64
}

func (l *callerList) add(q *caller) {
	l.tickets++
	q.listed, q.ticket, q.previous, q.next = true, l.tickets, l.last, nil
	if l.last == nil {
		l.first = q
	} else {
		l.last.next = q
	}
	l.last = q
}

// addFirst adds a caller again after it was granted the lock: its ticket is smaller than all
// others.
func (l *callerList) addFirst(q *caller) {
	q.listed, q.contended, q.previous, q.next = true, true, nil, l.first
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
