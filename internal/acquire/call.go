package acquire

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/work"
)

// A Call is an acquire in progress. It sends a request to the store. If the name is not free, it
// joins the store's wait queue, until a notification arrives or the next heartbeat is due. The
// request is idempotent. So the same request is also the heartbeat, and detects a grant with a lost
// notification.
//
// Begin begins a Call, Run runs it, once for each attempt, and End ends it. Only one goroutine can
// use a Call.
type Call struct {
	a          *Acquirer
	request    driver.AcquireRequest
	limits     Limits
	own        bool                // the caller chose the token and may use it again
	waiter     *waiter             // nil before the call begins and after it ends
	sent       time.Duration       // when the last answered request was sent
	reply      driver.AcquireReply // to the last answered request
	replied    bool                // reply is set
	failed     time.Duration       // since when no request was answered, or zero
	poll       pollInterval        // while the store cannot notify the waiter
	unanswered time.Time           // an unanswered acquire may arrive at the store until then
}

// Limits limit a call.
type Limits struct {
	Queue     bool          // the call may wait
	End       time.Duration // end of the waiting, on the client's clock; zero: with the context
	Timeout   time.Duration // for an operation
	Continues bool          // the call is part of work that holds a lease: it may wait while the client shuts down
}

// Life returns a context that ends when a call with these limits may no longer wait.
func (l Limits) Life(b *work.Background) context.Context {
	if l.Continues {
		return b.UntilClose()
	}
	return b.UntilDrain()
}

// Begin begins a call that was not begun, or is over. In the request, it sets Seq, Late, and the
// fields that depend on each reply. own means that the caller chose the token and may use it again.
func (c *Call) Begin(a *Acquirer, request driver.AcquireRequest, limits Limits, own bool) {
	*c = Call{a: a, request: request, limits: limits, own: own}
	c.request.Seq = a.seq.Add(1)
	c.request.Late = len(request.With) == 0 && a.lateness.isLate(a.Clock.Now())
	c.waiter = a.Inbox.add(request.Token)
}

// HasBegun reports whether the call is in progress.
func (c *Call) HasBegun() bool { return c.waiter != nil }

// Name returns the call's first name, or an empty string if it was never begun.
func (c *Call) Name() string { return c.request.Name }

// Token returns the call's token, or an empty string if it was never begun.
func (c *Call) Token() string { return c.request.Token }

// End ends a call, if it is in progress. Unless the caller keeps its grant, the call leaves nothing
// at the store: no queue entry, no lock, and no unanswered request that arrives later. values is
// the call's context.
func (c *Call) End(values context.Context, keep bool) {
	if c.waiter == nil {
		return
	}
	c.a.Inbox.remove(c.request.Token, c.waiter)
	c.waiter = nil
	if !keep && (c.replied && (c.request.Queue || c.reply.Held) || !c.unanswered.IsZero()) {
		c.a.Cancel(values, c.request, c.own, c.unanswered)
	}
}

// Run requests the lock once, and waits for it if the limits allow it. It calls queued, unless nil,
// each time the call waits in the queue. queued must not block.
func (c *Call) Run(ctx context.Context, queued func(driver.AcquireReply)) (Grant, Outcome) {
	switch {
	case ctx.Err() == nil:
	case c.replied: // to an earlier attempt
		return Grant{}, c.busy(ctx)
	default:
		return Grant{}, Outcome{Why: NotSent, Cause: context.Cause(ctx)}
	}
	if o := c.awaitCancelled(ctx); o.Why != Granted {
		return Grant{}, o
	}
	c.request.Queue = c.limits.Queue && c.timeLeft() > 0
	return c.wait(ctx, queued)
}

// timeLeft returns how long the call may still wait.
func (c *Call) timeLeft() time.Duration {
	if c.limits.End == 0 {
		return clock.Never
	}
	return c.limits.End - c.a.Clock.Now()
}

// try sends a request, and returns the grant or the reason for its absence.
func (c *Call) try(ctx context.Context) (Grant, Outcome) {
	switch err := c.send(ctx); {
	case err != nil:
		return Grant{}, c.failure(err)
	case !c.reply.Held:
		return Grant{}, c.busy(ctx)
	}
	ttl := c.request.TTL
	if c.a.Clock.Now() >= c.sent+ttl-clock.Margin(ttl) {
		return Grant{}, c.failure(&driver.UnavailableError{Op: "acquire", Name: c.request.Name, Cause: errLate})
	}
	return c.grant(c.reply.Fence, ttl), Outcome{}
}

var errLate = errors.New("the store answered after the lease had expired: use a longer TTL on this network")

func (c *Call) grant(fence uint64, ttl time.Duration) Grant {
	return Grant{Request: c.request, Fence: fence, FirstFence: fence, Sent: c.sent, TTL: ttl, Unanswered: c.unanswered}
}

func (c *Call) failure(err error) Outcome {
	return Outcome{Why: Failed, Err: err, Unknown: !c.unanswered.IsZero(), Reply: c.reply, Replied: c.replied}
}

func (c *Call) busy(ctx context.Context) Outcome {
	return Outcome{Why: Busy, Reply: c.reply, Replied: c.replied, Cause: cause(ctx)}
}

// send sends a request. It repeats it while the outcome is unknown and the operation timeout is not
// over.
func (c *Call) send(ctx context.Context) error {
	timeout := c.limits.Timeout
	if c.replied && c.limits.Queue {
		timeout = min(timeout, max(c.timeLeft(), time.Millisecond))
	}
	do := func(t Attempt) error {
		c.request.Until = t.Until
		sent := time.Now()
		reply, err := c.a.Store.Acquire(ctx, c.request)
		switch {
		case err == nil:
			c.sent, c.reply, c.replied, c.failed = t.Sent, reply, true, 0
			c.request.Ticket, c.request.Confirmed = max(c.request.Ticket, reply.Ticket), sent
		case answer.MayArrive(err):
			c.unanswered = clock.Later(c.unanswered, t.Until)
		}
		return err
	}
	end := time.Now().Add(timeout)
	if c.replied {
		return c.a.sendHeartbeat(ctx, end, do)
	}
	err := c.a.Retry(ctx, end, do) // not through a variable, which would allocate
	for n := 1; n < crowded && c.isCrowdedOut(ctx, err); n++ {
		err = c.a.Retry(ctx, time.Now().Add(timeout), do)
	}
	return err
}

// crowded is how many operation timeouts a first request may wait for its turn in this process.
const crowded = 10

// isCrowdedOut reports whether to repeat a first request that was not sent in time. If many calls
// begin at once, the last calls may wait for more than a timeout.
func (c *Call) isCrowdedOut(ctx context.Context, err error) bool {
	return c.limits.Queue && c.timeLeft() > 0 && answer.IsUnsentHere(err) && ctx.Err() == nil
}
