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
	maxBatch    = 512             // leases in one renewal
	maxRenewals = 32              // in progress; more would fail, because each waits for the others until its time limit
	renewWindow = 3 * time.Second // renewals due within this time, or a tenth of the TTL, are sent together
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
	if c.renewer.startReconnect(now) {
		// Even those with a renewal in progress: that may be waiting for a server that no
		// longer exists.
		for _, h := range c.renewer.all() {
			_ = h.update(func(s *leaseState) { s.renewNow(now, true) })
		}
	}
	batch := c.actOn(c.renewer.popDue(now), now)
	for len(batch) > 0 {
		part := batch[:min(len(batch), maxBatch)]
		batch = batch[len(part):]
		c.work.run(func(ctx context.Context) { c.renewInTurn(ctx, part) })
	}
	return c.renewer.sleep(now)
}

// actOn ends the leases whose deadline has passed, and returns those to be renewed.
func (c *Client) actOn(due []*lease, now time.Duration) (batch []*lease) {
	for _, h := range due {
		renew := false
		_ = h.update(func(s *leaseState) { renew = s.act(now) })
		if renew {
			batch = append(batch, h)
		}
	}
	return batch
}

// renewInTurn renews a batch when fewer than maxRenewals are in progress. If they hang, it
// does not wait for them longer than half of the time that a lease has left.
func (c *Client) renewInTurn(ctx context.Context, batch []*lease) {
	select {
	case c.renewals <- struct{}{}:
		defer func() { <-c.renewals }()
	default:
		patience := time.NewTimer(c.timeLeft(batch) / 2)
		defer patience.Stop()
		select {
		case c.renewals <- struct{}{}:
			defer func() { <-c.renewals }()
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	c.renew(ctx, batch)
}

// timeLeft returns the time until the first deadline of these leases.
func (c *Client) timeLeft(batch []*lease) time.Duration {
	now, left := c.clock.now(), never
	for _, h := range batch {
		h.mu.Lock()
		left = min(left, h.deadline-now)
		h.mu.Unlock()
	}
	return left
}

// renew extends a batch of leases in one store call.
func (c *Client) renew(ctx context.Context, batch []*lease) {
	sent := c.clock.check()
	requests := make([]driver.ExtendRequest, 0, len(batch))
	ttls, names := make([]time.Duration, len(batch)), make([]int, len(batch))
	left := c.defaults.timeout
	for i, h := range batch {
		h.mu.Lock()
		ttls[i] = h.renewalTTL(sent)
		left = min(left, h.deadline-sent)
		before := len(requests)
		requests = h.renewRequests(requests, c.id, ttls[i])
		names[i] = len(requests) - before
		h.mu.Unlock()
	}
	// A call that hangs must leave time for another one, on another connection.
	errs := c.store.Extend(ctx, time.Now().Add(max(left/2, 5*time.Millisecond)), requests)
	took := c.clock.now() - sent
	renewed, headroom := 0, 1.0
	for i, h := range batch {
		h.mu.Lock()
		name, err := h.extendResult(errs[:names[i]])
		share := h.headroom(c.clock.now())
		h.mu.Unlock()
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

// recordRenewal records the outcome of one renewal of this many names; name is the one
// that failed.
func (c *Client) recordRenewal(h *lease, sent, ttl time.Duration, names int, name string, err error) bool {
	if errors.Is(err, ErrLost) {
		_ = h.lose(name, ReasonTaken, takenBy(err)) // the context and the hook of the lease report it
		return false
	}
	now, asks := c.clock.now(), false
	ended := h.update(func(s *leaseState) {
		if !s.ended {
			s.recordRenewal(now, sent, ttl, names, err)
			asks = s.extra().wanted != nil
		}
	})
	if err != nil && ended == nil {
		h.holder().queueRenewFailed(h)
	}
	if err == nil && ended == nil && asks {
		h.registerWanted()
	}
	return err == nil && ended == nil
}

// renewAll makes all leases due now, because the store is available again after a failure,
// and may have lost them. It returns false if that was done just before.
func (c *Client) renewAll() bool {
	now := c.clock.now()
	if !c.renewer.mayRenewAll(now) {
		return false
	}
	for _, h := range c.renewer.all() {
		_ = h.update(func(s *leaseState) { s.renewNow(now, false) })
	}
	c.renewer.signal()
	return true
}
