package dibs

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"time"

	"github.com/dibslock/dibs/driver"
)

// The renewer of a Client is one goroutine that ends leases at their deadlines and starts
// their renewals in batches. It never waits for the store, so a store that hangs delays
// no deadline.

// never is a time in the infinite future.
const never = time.Duration(math.MaxInt64)

const (
	maxBatch    = 512                    // leases in one renewal
	renewWindow = 100 * time.Millisecond // renewals due within this time are sent together
)

// schedule is a heap of leases, sorted by the time of the next action.
type schedule []*leaseState

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].nextAction() < s[j].nextAction() }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	h := x.(*leaseState)
	h.index = len(*s)
	*s = append(*s, h)
}

func (s *schedule) Pop() any {
	old := *s
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	h.index = -1
	return h
}

// nextAction returns the time of the next renewal, or of the deadline if that is earlier.
func (h *leaseState) nextAction() time.Duration {
	if h.renewing {
		return h.deadline
	}
	return min(h.renewAt, h.deadline)
}

// schedule puts a lease into the heap, or moves it. The caller holds c.mu.
func (c *Client) schedule(h *leaseState) {
	if h.index < 0 {
		heap.Push(&c.leases, h)
	} else {
		heap.Fix(&c.leases, h.index)
	}
	next := h.nextAction()
	c.shortestWait = min(c.shortestWait, next-c.clock.now())
	if next < c.wakeAt {
		c.wakeRenewer()
	}
}

func (c *Client) unschedule(h *leaseState) {
	if h.index >= 0 {
		heap.Remove(&c.leases, h.index)
	}
}

// wakeRenewer wakes the scheduler. schedule calls it only if the lease is due before
// c.wakeAt, which is rare.
func (c *Client) wakeRenewer() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// runRenewer is the loop of the scheduler.
func (c *Client) runRenewer() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(c.tick())
		select {
		case <-timer.C:
		case <-c.wake:
		case <-c.work.life.Done():
			return
		}
	}
}

// tick does what is due and returns how long to sleep.
func (c *Client) tick() time.Duration {
	c.mu.Lock()
	now := c.clock.check()
	if c.reconnects.open(now) {
		c.renewAllAnew(now)
	}
	ended, batch := c.collectDue(now)
	// A timer stops while the machine is suspended; the TTL of a lease does not.
	c.wakeAt = now + time.Second
	switch {
	case len(c.leases) > 0:
		c.wakeAt = min(c.wakeAt, c.leases[0].nextAction())
	case c.shortestWait == never: // no lease was scheduled since the last tick
		c.wakeAt = now + time.Hour
	}
	if c.shortestWait < never {
		// More leases like these will probably come and end before their first action. An
		// early tick spares each of them the wake-up.
		c.wakeAt = min(c.wakeAt, now+max(c.shortestWait, 0))
	}
	c.shortestWait = never
	c.wakeAt = min(c.wakeAt, max(c.reconnects.next(), now))
	sleep := c.wakeAt - now
	c.mu.Unlock()

	for _, e := range ended {
		e.notify()
	}
	for len(batch) > 0 {
		part := batch[:min(len(batch), maxBatch)]
		batch = batch[len(part):]
		c.work.run(func(ctx context.Context) { c.renew(ctx, part) })
	}
	return sleep
}

// collectDue ends the leases whose deadline has passed, and returns those to be renewed.
func (c *Client) collectDue(now time.Duration) (ended []leaseEnd, batch []*leaseState) {
	for len(c.leases) > 0 {
		h := c.leases[0]
		switch {
		case h.deadline <= now:
			ended = append(ended, h.expire())
		case h.nextAction() == h.renewAt && !h.renewing && h.renewAt <= now+h.renewEarlyBy():
			h.renewing = true
			heap.Fix(&c.leases, 0)
			batch = append(batch, h)
		default:
			return ended, batch
		}
	}
	return ended, batch
}

// renewEarlyBy returns how long before its due time a renewal may be sent, to share a
// batch. A renewal that has failed waits for its due time. Otherwise it would be repeated
// without a pause.
func (h *leaseState) renewEarlyBy() time.Duration {
	if h.renewErr != nil {
		return 0
	}
	return min(renewWindow, h.ttl/10)
}

// renew extends a batch of leases in one store call.
func (c *Client) renew(ctx context.Context, batch []*leaseState) {
	sent := c.clock.check()
	requests := make([]driver.ExtendRequest, 0, len(batch))
	ttls, names := make([]time.Duration, len(batch)), make([]int, len(batch))
	left := c.defaults.timeout
	c.mu.Lock()
	for i, h := range batch {
		ttls[i] = h.capTTL(sent, h.renewalTTL(sent))
		left = min(left, h.deadline-sent)
		before := len(requests)
		requests = h.extendRequests(requests, ttls[i])
		names[i] = len(requests) - before
	}
	c.mu.Unlock()
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
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
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
	c.mu.Lock()
	defer c.mu.Unlock()
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
	c.schedule(h)
	return err == nil
}

// renewAll makes all leases due now, because the store is available again after a failure,
// and may have lost them. It returns false if all leases were last made due less than 1 s
// ago: if one of several servers is down for long, successes and failures alternate, and
// each success would renew all leases.
func (c *Client) renewAll() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now()
	if c.renewedAllAt != 0 && now-c.renewedAllAt < time.Second {
		return false
	}
	c.allDue(now)
	c.wakeRenewer()
	return true
}

// renewAllSoon makes all leases due, but not again and again if the connection to the
// store flaps. The store may have lost them.
func (c *Client) renewAllSoon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reconnects.request(c.clock.now())
	c.wakeRenewer()
}

// allDue makes all leases due for renewal. The caller holds c.mu.
func (c *Client) allDue(now time.Duration) {
	c.renewedAllAt = now
	for _, h := range c.leases {
		h.renewAt = now
	}
	heap.Init(&c.leases)
}

// renewAllAnew makes all leases due, even those with a renewal in progress: that may be
// waiting for a server that no longer exists. The caller holds c.mu.
func (c *Client) renewAllAnew(now time.Duration) {
	for _, h := range c.leases {
		h.renewing = false
	}
	c.allDue(now)
}
