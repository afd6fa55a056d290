package dibs

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// watch receives the store's events for as long as the client lives.
func (c *Client) watch() {
	defer c.inbox.setFlow(eventsUnknown, func() { c.queueDegraded(nil) })
	life := c.work.life
	for {
		err := c.store.Watch(life, c.id, c.busy, c.handleEvent)
		if life.Err() != nil {
			return
		}
		c.handleEvent(driver.Event{Kind: driver.EventDisconnected, Err: err})
		if !pause(life, 10*time.Second) {
			return
		}
	}
}

// busy reports whether the client holds or awaits anything.
func (c *Client) busy() bool { return c.renewals.Len() > 0 || c.inbox.calls() > 0 }

// handleEvent handles one event of the store.
func (c *Client) handleEvent(e driver.Event) {
	switch e.Kind {
	case driver.EventRevoked:
		c.endRevoked(e)
	case driver.EventGranted, driver.EventRetry:
		if e.Age >= lateAge {
			c.lateness.begin(c.clock.now())
		}
		c.inbox.deliver(e)
	case driver.EventWanted:
		for _, h := range c.wanted.of(e.Token) {
			h.setWanted()
		}
	case driver.EventConnected:
		before := c.inbox.setFlow(eventsFlowing, func() { c.queueDegraded(nil) })
		c.inbox.retryAll()
		if before != eventsUnknown {
			c.reconnected()
		}
		c.registerWanted()
	case driver.EventDisconnected:
		before := c.inbox.setFlow(eventsStopped, func() { c.queueDegraded(e.Err) })
		if before == eventsFlowing { // grants are lost
			c.lateness.begin(c.clock.now())
		}
		if before != eventsStopped { // otherwise they poll already
			c.inbox.retryAll()
		}
	case driver.EventFailover:
		c.inbox.retryAll()
		c.failedOver()
		c.registerWanted()
	}
}

// queueDegraded queues the Degraded hooks when events stop (err says why) or resume.
func (c *Client) queueDegraded(err error) {
	c.defaults.hooks.each(func(h *Hooks) {
		if h.Degraded != nil {
			c.hooks.add(false, func() { h.Degraded(Degraded{Err: err}) })
		}
	})
}

// endRevoked ends the lease that an event reports as revoked, with all its names.
func (c *Client) endRevoked(e driver.Event) {
	for _, h := range c.renewals.All() {
		if h.token == e.Token {
			_ = h.update(func(s *leaseState) { s.revoke(e.Fence, e.Reason) })
		}
	}
}
