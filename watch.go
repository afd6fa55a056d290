package dibs

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/work"
)

// watch receives the store's events until the client ends. An idle client stays subscribed:
// otherwise its next contended lock would wait for the subscription.
func (c *Client) watch() {
	defer c.acquirer.Inbox.SetFlow(acquire.Unsubscribed, func() { c.queueDegraded(nil) })
	life := c.work.UntilEnd()
	for {
		err := c.store.Watch(life, c.id, c.busy, c.handleEvent)
		if life.Err() != nil {
			return
		}
		c.handleEvent(driver.Event{Kind: driver.EventDisconnected, Err: err})
		if !work.Pause(life, 10*time.Second) {
			return
		}
	}
}

// busy reports whether the client holds or awaits anything.
func (c *Client) busy() bool { return c.renewals.Len() > 0 || c.acquirer.Inbox.Calls() > 0 }

// handleEvent handles an event from the store.
func (c *Client) handleEvent(e driver.Event) {
	inbox := &c.acquirer.Inbox
	switch e.Kind {
	case driver.EventRevoked:
		c.endRevoked(e)
	case driver.EventGranted, driver.EventRetry:
		c.acquirer.Granted(e)
	case driver.EventWanted:
		for _, signal := range c.wanted.of(e.Token) {
			signal.close()
		}
	case driver.EventConnected:
		before := inbox.SetFlow(acquire.Flowing, func() { c.queueDegraded(nil) })
		inbox.RetryAll()
		if before != acquire.Unsubscribed {
			c.renewals.Reconnected()
		}
		c.wanted.registerAll()
	case driver.EventDisconnected:
		before := inbox.SetFlow(acquire.Stopped, func() { c.queueDegraded(e.Err) })
		if before == acquire.Flowing { // grants are lost
			c.acquirer.GrantsLost()
		}
		if before != acquire.Stopped { // otherwise they poll already
			inbox.RetryAll()
		}
	case driver.EventFailover:
		inbox.RetryAll()
		c.renewals.FailedOver()
		c.wanted.registerAll()
	}
}

// queueDegraded queues the Degraded hooks when events stop (err says why) or resume.
func (c *Client) queueDegraded(err error) {
	e := Degraded{Client: c.id, Err: public(err)}
	c.defaults.hooks.each(func(hooks *Hooks) {
		if hooks.Degraded != nil {
			c.hooks.Add(false, func() { hooks.Degraded(context.Background(), e) })
		}
	})
}

// endRevoked ends the lease that an event reports as revoked, with all its names.
func (c *Client) endRevoked(e driver.Event) {
	for _, l := range c.renewals.All() {
		if l.state.Token == e.Token {
			_ = l.update(func(s *leasestate.State) { s.Revoke(e.Fence, e.Reason) })
		}
	}
}
