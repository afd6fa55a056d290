package acquire

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/clock"
)

// wait sends requests and waits in the queue until the lock is granted. A call that does not queue
// sends a single request.
func (c *Call) wait(ctx context.Context, queued func(driver.AcquireReply)) (Grant, Outcome) {
	if c.request.Queue && c.a.Inbox.Flow() == Unsubscribed {
		if g, o := c.tryBeforeEvents(ctx); o.Why != again {
			return g, o
		}
	}
	var retry, limit timer
	defer retry.stop()
	defer limit.stop()
	for {
		g, o := c.try(ctx)
		if o.Why == Granted || !c.keepsWaiting(ctx, o) {
			return g, o.withCause(cause(ctx), c.request.Name)
		}
		if queued != nil {
			queued(c.reply)
		}
		if limit.c == nil {
			c.limit(&limit)
		}
		retry.set(c.retryDelay(o))
		if g, o = c.await(ctx, retry.c, limit.c); o.Why != again {
			return g, o
		}
	}
}

// limit sets the timer to the end of the waiting, if any.
func (c *Call) limit(t *timer) {
	if c.limits.End != 0 {
		t.set(c.timeLeft())
	}
}

// subscriptionWait is how long a call waits for its new client's subscription, but at most half its
// Timeout. Otherwise a caller that waits for the call, such as a cohort's, would time out before it
// knows about another holder.
const subscriptionWait = time.Second / 2

// tryBeforeEvents sends a new client's first request, before the client is subscribed and can be
// notified. The request does not queue: a release would skip the queue entry of a client without a
// subscription, and serve later waiters first. If the name is not free, the call waits until the
// client is subscribed, or until the store delivers no events. Then it can queue.
func (c *Call) tryBeforeEvents(ctx context.Context) (Grant, Outcome) {
	c.request.Queue = false
	g, o := c.try(ctx)
	c.request.Queue = true
	if o.Why != Busy {
		return g, o.withCause(cause(ctx), c.request.Name)
	}
	var end, limit timer
	defer end.stop()
	defer limit.stop()
	end.set(min(subscriptionWait, c.limits.Timeout/2))
	c.limit(&limit)
	if c.a.Inbox.Flow() != Unsubscribed {
		return Grant{}, Outcome{Why: again}
	}
	return c.await(ctx, end.c, limit.c) // any event means that the client is subscribed
}

// await waits until the lock is granted, the waiting is over, or the next request is due.
func (c *Call) await(ctx context.Context, retry, limit <-chan time.Time) (Grant, Outcome) {
	for {
		var e driver.Event
		select {
		case e = <-c.waiter.event: // an event counts even if the waiting is over
		default:
			select {
			case e = <-c.waiter.event:
			case <-retry:
				return Grant{}, Outcome{Why: again}
			case <-limit:
				return Grant{}, c.busy(ctx)
			case <-ctx.Done():
				return Grant{}, c.busy(ctx)
			case <-c.limits.Life(c.a.Work).Done():
				return Grant{}, Outcome{Why: Closed}
			}
		}
		if e.Kind != driver.EventGranted {
			return Grant{}, Outcome{Why: again}
		}
		// The grant is older than its notification, but not older than the last request answered
		// "not granted". So the lease counts from when that request was sent. Ticket and fence show
		// that the grant belongs to the current queue entry, not to an earlier entry that was lost
		// and replaced.
		if e.Ticket == c.reply.Ticket && e.Fence > c.reply.Fence && c.request.Queue {
			return c.acceptGrant(e)
		}
	}
}

// acceptGrant accepts a grant by hand-off. If little of the hand-off TTL is left, the next request
// confirms the grant.
func (c *Call) acceptGrant(e driver.Event) (Grant, Outcome) {
	ttl := c.request.HandoffTTL()
	if c.sent+ttl-clock.Margin(ttl)-c.a.Clock.Check() < ttl/4 {
		return Grant{}, Outcome{Why: again}
	}
	c.reply.Fence = e.Fence
	g := c.grant(e.Fence, ttl)
	g.Notified, g.Handoff = true, e.Age
	if e.Fences > 0 {
		g.FirstFence = e.Fence - e.Fences + 1
	}
	return g, Outcome{}
}

// keepsWaiting reports whether a call continues without a grant. A waiter's first request must be
// answered. After that, an outage costs a waiter at most its queue position. A store that rejects
// requests, for example because its memory is full, also counts as an outage: an operator has to
// mend it, and the wait has its own limit.
func (c *Call) keepsWaiting(ctx context.Context, o Outcome) bool {
	switch {
	case !c.request.Queue:
		return false
	case o.Why == Busy:
		return true
	case !c.replied || answer.IsPermanent(o.Err) || ctx.Err() != nil:
		return false
	}
	if c.failed == 0 {
		c.failed = c.a.Clock.Now()
	}
	return true
}

// A timer is a time.Timer that is created on first use.
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
