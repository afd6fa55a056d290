package dibs

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// The scheduler of a Client is one goroutine that ends leases at their deadlines and
// starts their renewals in batches. It never waits for the store, so a store that hangs
// delays no deadline.

const (
	maxBatch    = 512                    // leases in one renewal
	renewWindow = 100 * time.Millisecond // renewals due within this time are sent together
)

// runScheduler is the loop of the scheduler.
func (c *Client) runScheduler() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(c.tick())
		select {
		case <-timer.C:
		case <-c.renewer.wake:
		case <-c.work.life.Done():
			return
		}
	}
}

// tick does what is due and returns how long to sleep.
func (c *Client) tick() time.Duration {
	now := c.clock.check()
	if c.renewer.takeReconnect(now) {
		// Even those with a renewal in progress: that may be waiting for a server that no
		// longer exists.
		for _, h := range c.renewer.all() {
			h.renewNow(now, true)
		}
	}
	batch := c.actOn(c.renewer.takeDue(now), now)
	for len(batch) > 0 {
		part := batch[:min(len(batch), maxBatch)]
		batch = batch[len(part):]
		c.work.run(func(ctx context.Context) { c.renew(ctx, part) })
	}
	return c.renewer.sleep(now)
}

// actOn ends the leases whose deadline has passed, and returns those to be renewed.
func (c *Client) actOn(due []*leaseState, now time.Duration) (batch []*leaseState) {
	for _, h := range due {
		ended, renew := h.act(now)
		ended.notify()
		if renew {
			batch = append(batch, h)
		}
	}
	return batch
}

// act ends the lease if its deadline has passed. It reports whether the caller is to renew
// the lease.
func (h *leaseState) act(now time.Duration) (ended leaseEnd, renew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch at, early := h.nextAction(); {
	case h.ended:
	case h.deadline <= now:
		return h.expire(), false
	case at == h.renewAt && !h.renewing && at-early <= now:
		h.renewing, renew = true, true
		h.schedule()
	default:
		h.schedule()
	}
	return leaseEnd{}, renew
}

// renewNow makes the lease due for renewal, even if a renewal is in progress and anew is
// set.
func (h *leaseState) renewNow(now time.Duration, anew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	if anew {
		h.renewing = false
	}
	h.renewAt = now
	h.schedule()
}

// schedule schedules the next action of the lease. It returns false after Close.
func (h *leaseState) schedule() bool {
	at, early := h.nextAction()
	return h.c.renewer.set(h, h.c.clock.now(), at, early)
}

// nextAction returns the time of the next renewal, or of the deadline if that is earlier,
// and how long before that time a renewal may be sent to share a batch. A renewal that has
// failed waits for its due time. Otherwise it would be repeated without a pause.
func (h *leaseState) nextAction() (at, early time.Duration) {
	switch {
	case h.renewing || h.deadline < h.renewAt:
		return h.deadline, 0
	case h.renewErr != nil:
		return h.renewAt, 0
	default:
		return h.renewAt, min(renewWindow, h.ttl/10)
	}
}

// renew extends a batch of leases in one store call.
func (c *Client) renew(ctx context.Context, batch []*leaseState) {
	sent := c.clock.check()
	requests := make([]driver.ExtendRequest, 0, len(batch))
	ttls, names := make([]time.Duration, len(batch)), make([]int, len(batch))
	left := c.defaults.timeout
	for i, h := range batch {
		h.mu.Lock()
		ttls[i] = h.capTTL(sent, h.renewalTTL(sent))
		left = min(left, h.deadline-sent)
		before := len(requests)
		requests = h.extendRequests(requests, ttls[i])
		names[i] = len(requests) - before
		h.mu.Unlock()
	}
	// A call that hangs must leave time for another one, on another connection.
	errs := c.store.Extend(ctx, time.Now().Add(max(left/2, 5*time.Millisecond)), requests)
	took := c.clock.now() - sent
	renewed, headroom := 0, 1.0
	for i, h := range batch {
		name, err := h.extendResult(errs[:names[i]])
		share := h.headroom()
		if c.recordRenewal(h, sent, ttls[i], names[i], name, err) {
			renewed, headroom = renewed+1, min(headroom, share)
		}
		errs = errs[names[i]:]
	}
	if renewed > 0 {
		c.queueRenewed(Renewed{Leases: renewed, Took: took, Headroom: headroom})
	}
}

func (c *Client) queueRenewed(e Renewed) {
	c.defaults.hooks.each(func(h *Hooks) {
		if h.Renewed != nil {
			c.hooks.add(false, func() { h.Renewed(e) })
		}
	})
}

// headroom returns how much is left of the lease's time, from 1 to 0. It is 1 for a lease
// that is not renewed.
func (h *leaseState) headroom() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	whole := h.deadline - h.deadlineFrom
	if h.rule == fixed || whole <= 0 {
		return 1
	}
	return max(0, float64(h.deadline-h.c.clock.now())/float64(whole))
}

// renewalTTL returns the TTL of a renewal.
func (h *leaseState) renewalTTL(now time.Duration) time.Duration {
	switch h.rule {
	case extendOnce:
		return max(h.acquiredAt+h.ttl, h.minHoldUntil) - now
	case fixed:
		return time.Millisecond // only checks whether it is held: Extend never shortens a lease
	default:
		return max(h.ttl, h.minHoldUntil-now)
	}
}

// recordRenewal records the outcome of one renewal of this many names; name is the one
// that failed.
func (c *Client) recordRenewal(h *leaseState, sent, ttl time.Duration, names int, name string, err error) bool {
	if errors.Is(err, ErrLost) {
		_ = h.lose(name, ReasonTaken, nil) // the context and the hook of the lease report it
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewing = false
	if h.ended {
		return false
	}
	h.renewErr = err
	now := c.clock.now()
	switch {
	case err == nil && names <= len(h.moreNames):
		h.renewAt = now // names were added during the renewal
	case err == nil:
		if h.rule == extendOnce {
			h.rule = fixed
		}
		h.extendDeadline(sent, ttl)
	default:
		retryIn := min(h.ttl/20, (h.deadline-now)/4, 250*time.Millisecond)
		h.renewAt = now + max(retryIn, 10*time.Millisecond)
		h.queueRenewFailed()
	}
	h.schedule()
	return err == nil
}

// renewAll makes all leases due now, because the store is available again after a failure,
// and may have lost them. It returns false if that was done just before.
func (c *Client) renewAll() bool {
	now := c.clock.now()
	if !c.renewer.mayRenewAll(now) {
		return false
	}
	for _, h := range c.renewer.all() {
		h.renewNow(now, false)
	}
	c.renewer.signal()
	return true
}
