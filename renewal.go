package dibs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/renew"
)

// The scheduler of a Client is one goroutine that ends leases at their deadlines and
// starts their renewals in batches. It never waits for the store, so a store that hangs
// delays no deadline. Deadlines go first; then come the renewals that are due, in the order of
// deadlines, as many as the budget has room for.

const (
	never       = renew.Never
	maxBatch    = 512             // leases in one renewal
	renewWindow = 3 * time.Second // renewals due within this time, or a tenth of the TTL, are sent together
	slice       = 512             // leases between two looks at the deadlines
	sampleSize  = 32              // leases that tell whether the store has lost its data
)

var errNoAnswer = &UnavailableError{Op: "extend", Cause: errors.New("the store has not answered so far: it is slow, or cannot be reached")}

// sendMore wakes the scheduler if it may send more renewals.
func (c *Client) sendMore() {
	if c.renewals.Ready() > 0 || c.flights.anyLate(c.clock.now()) {
		c.renewals.Signal()
	}
}

// Place implements renew.Holder.
func (h *lease) Place() *renew.Place { return &h.place }

// runScheduler is the loop of the scheduler.
func (c *Client) runScheduler() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(c.tick())
		select {
		case <-timer.C:
		case <-c.renewals.Wake:
		case <-c.work.life.Done():
			return
		}
	}
}

// tick does what is due and returns how long to sleep.
func (c *Client) tick() time.Duration {
	now := c.clock.check()
	late := c.renewals.Late(now)
	for c.checkDue(now, late) || c.checkFlights(now) || c.checkSuspects(now) || c.sendReady(now) {
		now = c.clock.check()
	}
	sleep := c.renewals.Sleep(now, c.gate.Next(load.Renewal, c.patience(now)))
	return min(sleep, max(c.flights.next(c.gate.Heard())-now, time.Millisecond))
}

// notSent returns why a renewal that is due was not sent: this process was late by some time, or
// the budget had no room.
func notSent(late time.Duration) error {
	cause := load.TooLittleCPU(late)
	if cause == nil {
		cause = errors.New("it was not sent in time: the store answers slowly")
	}
	return &UnavailableError{Op: "extend", Cause: cause, Unsent: true}
}

// checkDue ends leases whose deadline has passed, and makes those ready whose renewal is due. It
// reports whether there was one.
func (c *Client) checkDue(now, late time.Duration) bool {
	ahead := late
	if c.renewals.Len() > slice {
		ahead = 0 // its renewals may be why it is late, and more of them would make it worse
	}
	due := c.renewals.Due(now, ahead, slice)
	if len(due) == 0 {
		return false
	}
	unanswered := c.flights.whyUnanswered()
	for _, h := range due {
		if !h.makeReady(now, ahead) {
			_ = h.update(func(s *leaseState) { s.expireAt(now, late, unanswered) })
		}
	}
	return true
}

// makeReady makes a lease ready if its renewal is due.
func (h *lease) makeReady(now, ahead time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := h.isDue(now, ahead)
	if due {
		h.c.renewals.MakeReady(h, h.deadline)
	}
	return due
}

// checkSuspects makes leases ready that the store may have lost, unless enough are. It reports
// whether there was one.
func (c *Client) checkSuspects(now time.Duration) bool {
	if c.renewals.Ready() >= slice {
		return false
	}
	some, since := c.renewals.PopSuspects(now, slice)
	for _, h := range some {
		_ = h.update(func(s *leaseState) {
			if s.deadlineFrom <= since && s.attempts == 0 { // a renewal on its way will tell
				s.renewNow(now)
			}
		})
	}
	return len(some) > 0
}

// sendReady sends one batch of renewals, if there is room for it. It reports whether there was
// something to send.
func (c *Client) sendReady(now time.Duration) bool {
	ready := c.renewals.Ready()
	if ready == 0 {
		return false
	}
	sent, units := c.gate.Try(load.Renewal, load.Units(min(ready, maxBatch)), c.patience(now))
	if units == 0 {
		return false
	}
	f := c.newFlight(c.renewals.PopReady(min(load.Leases(units), maxBatch)), now, sent)
	if len(f.leases) == 0 {
		c.gate.End(&f.on, load.Dropped)
		return true
	}
	c.flights.add(f)
	c.work.run(func(context.Context) { c.renew(f) })
	return true
}

// patience returns how long the next renewal may wait after a failure.
func (c *Client) patience(now time.Duration) time.Duration {
	return max((c.renewals.FirstDeadline()-now)/4, 0)
}

// newFlight marks leases as being renewed, and returns them as a flight. Those whose answer would
// come too late are left out, and tried again later. The last one is always sent: its answer
// tells how fast the store is now.
func (c *Client) newFlight(ready []*lease, now time.Duration, on load.Sent) *flight {
	needs := c.gate.Needs()
	f := &flight{sent: now, on: on, leases: ready[:0], deadline: never}
	for i, h := range ready {
		sent := false
		_ = h.update(func(s *leaseState) {
			if i < len(ready)-1 && s.isHopeless(now, needs) {
				s.renewAt = now + max((s.deadline-now)/2, leastRetry)
				return
			}
			if sent = s.sendRenewal(); sent {
				f.deadline = min(f.deadline, s.deadline)
			}
		})
		if sent {
			f.leases = append(f.leases, h)
		}
	}
	return f
}

// renew extends a batch of leases in one store call. The call ends when no lease can need its
// answer any more.
func (c *Client) renew(f *flight) {
	r := newRenewalCall(c, f.leases)
	until := time.Now().Add(r.longest)
	errs := c.store.Extend(c.work.open, until, r.requests)
	c.flights.remove(f)
	c.gate.End(&f.on, c.bestOutcome(errs, until))
	now := c.clock.now()
	took, renewed, headroom := now-r.sent, 0, 1.0
	retryAt := r.retryAt(errs, now)
	for i, h := range f.leases {
		h.mu.Lock()
		share := h.headroom(now)
		h.mu.Unlock()
		if c.recordRenewal(r, i, r.of(i, errs), retryAt) {
			renewed, headroom = renewed+1, min(headroom, share)
		}
	}
	if renewed > 0 {
		c.queueRenewed(Renewed{Leases: renewed, Took: took, Headroom: headroom})
	}
}

// A renewalCall is what is sent for a batch of leases.
type renewalCall struct {
	leases   []*lease
	sent     time.Duration
	requests []driver.ExtendRequest
	first    []int           // the index of each lease's first request
	ttls     []time.Duration // of each lease
	longest  time.Duration   // until the last deadline
}

func newRenewalCall(c *Client, batch []*lease) *renewalCall {
	r := &renewalCall{
		leases: batch, sent: c.clock.check(), requests: make([]driver.ExtendRequest, 0, len(batch)),
		first: make([]int, len(batch)), ttls: make([]time.Duration, len(batch)), longest: leastRetry,
	}
	for i, h := range batch {
		h.mu.Lock()
		r.first[i], r.ttls[i] = len(r.requests), h.renewalTTL(r.sent)
		r.requests = h.extendRequests(r.requests, c.id, r.ttls[i])
		left := h.deadline - r.sent
		h.mu.Unlock()
		r.longest = max(r.longest, left)
	}
	return r
}

// of returns the results of the i-th lease: one for each of its names.
func (r *renewalCall) of(i int, errs []error) []error {
	if i+1 < len(r.first) {
		return errs[r.first[i]:r.first[i+1]]
	}
	return errs[r.first[i]:]
}

// retryAt returns when those that failed are sent again, together: when the first one of them
// has to be. It is not exact, because other clients have failed at the same moment.
func (r *renewalCall) retryAt(errs []error, now time.Duration) time.Duration {
	at := never
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return at
	}
	for i, h := range r.leases {
		h.mu.Lock()
		if _, err := h.extendResult(r.of(i, errs)); err != nil {
			at = min(at, h.leaseState.retryAt(now))
		}
		h.mu.Unlock()
	}
	if at == never {
		return never
	}
	return now + time.Duration((0.75+jitter(r.leases[0].name, now)/2)*float64(at-now))
}

// bestOutcome returns what came of a request with several results: one answer shows that the
// store answers.
func (c *Client) bestOutcome(errs []error, until time.Time) load.Outcome {
	best := load.Dropped
	for _, err := range errs {
		switch what := outcomeOf(c.work.open, err, until); what {
		case load.Answered:
			return what
		case load.Dropped:
		default:
			best = what
		}
	}
	return best
}

func (c *Client) queueRenewed(e Renewed) {
	c.defaults.hooks.each(func(h *Hooks) {
		if h.Renewed != nil {
			c.hooks.add(false, func() { h.Renewed(e) })
		}
	})
}

// recordRenewal records the outcome of the renewal of the i-th lease, and reports whether it
// succeeded. errs are the results of its names.
func (c *Client) recordRenewal(r *renewalCall, i int, errs []error, retryAt time.Duration) bool {
	h := r.leases[i]
	h.mu.Lock()
	name, err := h.extendResult(errs)
	h.mu.Unlock()
	if errors.Is(err, ErrLost) {
		_ = h.lose(name, ReasonTaken, takenBy(err)) // the context and the hook of the lease report it
		c.suspectRest(r.sent)
		return false
	}
	now, asks := c.clock.now(), false
	ended := h.update(func(s *leaseState) {
		if !s.ended {
			s.recordRenewal(now, r.sent, r.ttls[i], len(errs), err, retryAt)
			asks = s.extra().wanted != nil
		}
	})
	if err != nil && ended == nil {
		h.queueRenewFailed()
	}
	if err == nil && ended == nil && asks {
		h.registerWanted()
	}
	return err == nil && ended == nil
}
