package cohort

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A tenure is the time between acquiring and ending a store lease. The cohort's lock guards the
// fields from fences on.
type tenure struct {
	store     *dibs.Lease
	label     string
	since     time.Time
	contended bool        // others held the lock before, and probably wait for it
	forget    func() bool // makes the store lease's end no loss

	fences    fenceBlock
	served    int // local leases until now
	left      int // passes left while another process waits, or may wait
	others    others
	watched   bool // a goroutine waits for the answer, and then for others
	reserving bool // a request for fences is in progress
	exhausted bool // the store reserved no fence: the store lease must be released, not passed on
	inUse     bool // the store lease was lost while a local lease was in use
}

// others is the knowledge about other processes waiting for the store lease.
type others uint8

const (
	unknown    others = iota
	unanswered        // the store was asked
	nobody            // the store replied that none waits, and reports the first waiter
	somebody
)

const (
	// fewFences is when a cohort asks for more fences if nobody else waits: enough for the local
	// passes during a round trip.
	fewFences = 128

	// manyFences is how many fences it reserves at once at most. With more, a server's fences would
	// run ahead of its clock.
	manyFences = 1024
)

// reserveFences asks the store in the background for more fences, if few are left.
func (c *Cohort) reserveFences(t *tenure) {
	need := fewFences
	if t.others != nobody {
		need = min(need, t.left)
	}
	if t.reserving || t.exhausted || t.fences.left() >= uint64(need) {
		return
	}
	t.reserving = true
	n := max(need, min(t.served, manyFences)) // a long tenure needs many
	go func() {
		first, err := t.store.ReserveFences(t.store.Context(), n)
		c.change(func() {
			t.reserving, t.exhausted = false, err != nil
			if err == nil {
				t.fences.add(first, first+uint64(n)-1)
			}
		})
	}()
}

// watchOthers asks the store, once for each store lease, whether another process waits, and then
// waits for the first such process.
func (c *Cohort) watchOthers(t *tenure) {
	if t.watched {
		return
	}
	t.watched, t.others = true, unanswered
	go func() {
		waits, err := t.store.IsWanted(t.store.Context())
		switch {
		case err != nil:
			c.setOthers(t, unknown)
		case !waits:
			c.setOthers(t, nobody)
		}
		select {
		case <-t.store.Wanted():
			c.setOthers(t, somebody)
		case <-c.base.Closing:
			c.change(func() {}) // the store lease need not linger
		case <-t.store.Context().Done():
		}
	}()
}

func (c *Cohort) setOthers(t *tenure, now others) {
	c.change(func() {
		t.others = now
		c.signalWanted()
	})
}

// signalWanted closes Lease.Wanted's channel if another call or process waits.
func (c *Cohort) signalWanted() {
	if q := c.holder; q != nil && (c.callers.first != nil || q.lease.tenure.others == somebody) {
		q.lease.setWanted()
	}
}

// An acquisition acquires the store lease. The cohort's lock guards queued, busy and at.
type acquisition struct {
	c      *Cohort
	ctx    context.Context
	cancel context.CancelFunc
	label  string
	tries  bool // once, before it queues
	end    dibs.AcquireEnd

	queued bool           // others hold the lock
	busy   dibs.BusyError // who holds it
	at     time.Time      // the reply's
}

// startAcquisition acquires the store lease in the background, with a caller's values and label.
func (c *Cohort) startAcquisition(q *caller) {
	a := &acquisition{c: c, label: q.label, tries: q.mustKnowSoon()}
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(q.ctx))
	c.acquiring = a
	wait := c.pause
	c.pause = 0
	go a.run(wait)
}

// run waits, and then acquires the store lease.
func (a *acquisition) run(wait time.Duration) {
	var t *tenure
	err := hookError("acquire")
	defer func() { // also if a hook calls runtime.Goexit
		cancelled := a.ctx.Err() != nil
		a.cancel()
		a.c.acquired(a, t, err, cancelled)
	}()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-a.ctx.Done():
		}
	}
	var store *dibs.Lease
	if store, err = a.acquire(); err == nil {
		t = a.newTenure(store)
	}
}

// acquire acquires the store lease. A new client may have to wait for its subscription before it
// can queue. If the call's Wait is short, a single try before shows whether others hold the lock.
func (a *acquisition) acquire() (*dibs.Lease, error) {
	if a.tries {
		store, err := a.c.m.TryLock(a.ctx, a.options()...)
		busy := new(dibs.BusyError)
		if !errors.As(err, &busy) || a.ctx.Err() != nil {
			return store, err
		}
		a.setBusy(*busy)
	}
	options := a.options()
	if a.c.base.Wait >= 0 { // it is for the local leases
		options = append(options, dibs.Wait(math.MaxInt64))
	}
	return a.c.m.Lock(a.ctx, options...)
}

// hookError returns the error for an operation in which a hook calls runtime.Goexit.
func hookError(op string) error {
	return &dibs.UnavailableError{Op: op, Cause: errHook}
}

var errHook = errors.New("a hook has ended the goroutine of the Cohort")

// options returns the options of the store lease. MaxHold is for the local leases.
func (a *acquisition) options() []dibs.Option {
	return []dibs.Option{
		dibs.MaxHold(0), dibs.Label(a.label),
		dibs.Observe(dibs.Hooks{
			Queued: func(_ context.Context, e dibs.Queued) {
				a.setBusy(dibs.BusyError{Holder: e.Holder, Reserved: e.Reserved, NeverExpires: e.NeverExpires, Remaining: e.Remaining, Ahead: e.Position - 1})
			},
			AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) { a.end = e },
		}),
	}
}

// setBusy records another holder.
func (a *acquisition) setBusy(busy dibs.BusyError) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.queued, a.busy, a.at = true, busy, time.Now()
	if a.c.acquiring == a {
		a.c.recordContention()
	}
}

func (a *acquisition) newTenure(store *dibs.Lease) *tenure {
	t := &tenure{store: store, label: a.label, since: time.Now(), left: a.c.passes, fences: newFenceBlock(a.end.FirstFence, a.end.Fence)}
	t.forget = context.AfterFunc(store.Context(), func() { a.c.storeEnded(t) })
	return t
}

// acquired records an acquisition's result. If it was cancelled, the last caller left, and another
// may have come.
func (c *Cohort) acquired(a *acquisition, t *tenure, err error, cancelled bool) {
	c.change(func() {
		c.acquiring = nil
		switch {
		case t != nil:
			t.contended = a.queued
			c.tenure, c.failure = t, nil
		case !cancelled:
			c.fail(err)
		}
	})
}

// fail ends the waiting calls, as far as the failure ends them. An outage ends each call after its
// own Timeout. Calls that know about other holders continue to wait.
func (c *Cohort) fail(err error) {
	c.failure, c.pause = err, 50*time.Millisecond
	var of *driver.UnavailableError
	outage := errors.Is(err, dibs.ErrUnavailable) && !errors.Is(err, driver.ErrDisconnected)
	refused := errors.As(err, &of) && of.Refused || errors.Is(err, errHook)
	closed := errors.Is(err, dibs.ErrClosed) // for those calls that may not wait any longer
	if outage && !refused {
		return
	}
	for q := c.callers.first; q != nil; {
		next := q.next
		if (!outage || !q.contended) && (!closed || isClosed(q.closing)) {
			c.callers.remove(q)
			q.fail(err)
		}
		q = next
	}
}

// An idleTimer ends the IdleHold of a store lease. Each use of the lease would have to stop and start a
// timer. So the timer runs on, and checks when the last use was.
type idleTimer struct {
	since time.Time
	timer *time.Timer
	set   bool
}

// begin starts the time at now. After hold it calls f.
func (i *idleTimer) begin(now time.Time, hold time.Duration, f func()) {
	i.since = now
	if !i.set {
		i.start(hold, f)
	}
}

func (i *idleTimer) start(d time.Duration, f func()) {
	i.set = true
	if i.timer == nil {
		i.timer = time.AfterFunc(d, f)
		return
	}
	i.timer.Reset(d)
}

// isOver reports whether an idle lease was kept for long enough. Else it starts the timer again.
// It is called when the timer has fired.
func (i *idleTimer) isOver(idle bool, now time.Time, hold time.Duration, f func()) bool {
	i.set = false
	left := i.since.Add(hold).Sub(now)
	if idle && left > 0 {
		i.start(left, f)
	}
	return idle && left <= 0
}
