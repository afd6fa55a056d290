package dibs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/work"
)

// acquire acquires the requested names in a single lease, and queues for them if necessary.
func (c *Client) acquire(ctx context.Context, w lockSpec, set settings) (*Lease, error) {
	if err := cmp.Or(c.check(), set.check(w.name, w.with...)); err != nil {
		return nil, err
	}
	if l := leaseIn(ctx, c, w); l != nil {
		return l.reenter(w, set.reentrant)
	}
	if set.limit.once {
		set.limit = waitLimit{}
	}
	if set.choosesToken() {
		return c.acquireOwn(ctx, w, set)
	}
	return c.acquireNew(ctx, w, set)
}

// An acquisition is a user's call in progress. It acquires the requested parts one after another,
// and returns a single lease or none. Most requests are a single part: only a store unable to
// acquire all names in one step needs more. While the call waits for the next part, the parts
// already held are renewed.
type acquisition struct {
	c          *Client
	ctx        context.Context
	parent     context.Context // the caller's context; a hook may have added values to ctx
	spec       lockSpec
	settings   settings
	begin      time.Duration
	took       time.Duration         // from the beginning to the outcome
	continues  bool                  // part of work under a lock: it may wait while the client shuts down
	hooks      *hookCall             // nil if there are no hooks
	queuedHook <-chan struct{}       // closed when the Queued hooks return; nil if they were not called
	call       acquire.Call          // acquires the current part
	grant      acquire.Grant         // for the first part, except Notified and Handoff: for the last notified part
	lease      *lease                // all parts held now; nil if there is none
	later      *acquire.Announcement // the parts to acquire later; nil if none is announced
}

// acquireNew acquires a new lease, instead of reentering a held lease.
func (c *Client) acquireNew(ctx context.Context, w lockSpec, set settings) (*Lease, error) {
	a := acquisition{c: c, ctx: ctx, parent: ctx, spec: w, settings: set, begin: c.clock.Now()}
	if a.hooks = startHooks(ctx, c.id, w, &set); a.hooks != nil {
		a.ctx = a.hooks.context()
	}
	lease, err := a.run()
	// Close no longer waits for this call, so a hook can call Close.
	if a.queuedHook != nil {
		<-a.queuedHook
	}
	if a.hooks != nil {
		a.callAcquireEnd(a.end(lease, err), lease)
	}
	return lease, err
}

// run acquires the lease, or leaves nothing in the store.
func (a *acquisition) run() (*Lease, error) {
	if a.ctx.Err() != nil {
		return nil, acquireError(a.spec.name, acquire.Outcome{Why: acquire.NotSent, Cause: context.Cause(a.ctx)})
	}
	a.continues = a.settings.continues || continuesWork(a.parent, a.c)
	if !a.c.beginAcquire(a.continues) {
		return nil, ErrClosed
	}
	defer a.c.endAcquire() // after call.End, which starts its background work before Close ends
	defer a.call.End(a.ctx, false)
	if limits := a.limits(); limits.Queue && a.spec.parts() > 1 {
		a.later = a.c.acquirer.Announce(a.ctx)
		defer a.later.End()
	}
	err := a.repeat()
	a.took = a.c.clock.Now() - a.begin
	if err != nil {
		return nil, err
	}
	return &a.lease.first, nil
}

// repeat acquires all parts, up to Attempts times. If a part is lost during the wait for another
// part, repeat starts again without counting an attempt.
func (a *acquisition) repeat() error {
	for attempt := 1; ; attempt++ {
		outcome, err := a.acquireParts()
		if errors.Is(err, ErrLost) {
			switch {
			case a.c.work.IsClosed():
				return ErrClosed
			case a.mayWait():
				attempt--
				continue
			}
			outcome, err = acquire.Outcome{Why: acquire.Failed, Err: &driver.UnavailableError{Op: "acquire", Name: a.spec.name, Cause: errPartLost}}, nil
		}
		switch {
		case err != nil:
			return err
		case outcome.Why == acquire.Granted:
			return nil
		case attempt >= a.settings.limit.attempts || !outcome.MayRetry():
			return acquireError(a.call.Name(), outcome)
		case !work.PauseUntil(a.ctx, a.limits().Life(a.c.work), a.settings.limit.every):
			return acquireError(a.call.Name(), outcome.Ended(a.ctx, a.call.Name()))
		}
	}
}

var errPartLost = errors.New("one of the names was lost before the last one was acquired: use a longer TTL on this network")

// mayWait reports whether the call can still wait.
func (a *acquisition) mayWait() bool {
	limits := a.limits()
	return limits.Queue && (limits.End == 0 || a.c.clock.Now() < limits.End)
}

// ownToken reports whether the caller chose the token and can use it again.
func (a *acquisition) ownToken() bool { return a.settings.token != "" }

// token returns the token for a part. All parts share a token.
func (a *acquisition) token(part int) string {
	switch {
	case a.ownToken():
		return a.settings.token
	case part > 0:
		return a.call.Token()
	}
	return newToken(a.c.id, a.spec, a.settings.label)
}

func (a *acquisition) limits() acquire.Limits {
	limit := &a.settings.limit
	limits := acquire.Limits{Queue: limit.attempts == 0 && limit.wait != 0, Timeout: a.settings.timeout, Continues: a.continues}
	if limit.wait > 0 {
		limits.End = clock.Add(a.begin, limit.wait)
	}
	return limits
}

// newLease makes a lease from a grant. The first part's lease starts without the caller's NoRenew
// and MaxHold if there are more parts: beginWhole applies them to the whole lease. newLease returns
// ErrClosed if the client is closed.
func (a *acquisition) newLease(g *acquire.Grant) (*lease, error) {
	c, r, set := a.c, &g.Request, &a.settings
	l := &lease{
		c: c, parent: a.parent, hooks: a.hooks.forLease(), ownToken: a.ownToken(), handles: 1,
		state: leasestate.Granted(*r, g.Fence, min(r.TTL, set.ttl)), extra: extraOf(set, c),
	}
	l.first.l = l
	if !g.Unanswered.IsZero() {
		l.state.AddUnanswered(*r, g.Unanswered)
	}
	noRenew, maxHold := set.noRenew, set.maxHold
	if a.spec.parts() > 1 {
		noRenew, maxHold = false, 0
	}
	now, times := c.clock.Now(), &l.state.Times
	times.LimitHold(now, set.minHold, g.Sent, maxHold)
	times.Begin(noRenew, now, g.Sent, g.TTL, g.TTL < r.TTL, clock.Jitter(r.Name, now))
	if l.hooks != nil {
		l.hooks.heldSince = now
	}
	err := l.update(func(*leasestate.State) {})
	return l, err
}

// callQueued calls the Queued hooks, once per user call.
func (a *acquisition) callQueued(reply driver.AcquireReply) {
	if a.hooks.queued {
		return
	}
	a.hooks.queued = true
	a.queuedHook = a.hooks.callQueued(Queued{
		LockInfo: a.hooks.lockInfo(a.call.Token()), Holder: Token(reply.Holder), Position: reply.Position, Ticket: reply.Ticket,
		Reserved: reply.Reserved, NeverExpires: reply.NeverExpires(), Remaining: max(reply.Remaining, 0),
	})
}

// end returns the event for the call's end.
func (a *acquisition) end(lease *Lease, err error) AcquireEnd {
	e := AcquireEnd{LockInfo: a.hooks.lockInfo(a.call.Token()), Err: err, Waited: a.took, Queued: a.hooks.queued}
	if g := &a.grant; lease != nil {
		e.Fence, e.FirstFence, e.TTL, e.Notified, e.Handoff = g.Fence, g.FirstFence, g.Request.TTL, g.Notified, g.Handoff
	}
	return e
}

// acquireError returns the error for a call that ended without a grant.
func acquireError(name string, o acquire.Outcome) error {
	switch o.Why {
	case acquire.NotSent:
		return fmt.Errorf("dibs: acquire %q: %w", name, o.Cause)
	case acquire.Closed:
		return ErrClosed
	case acquire.Busy:
		return &BusyError{
			Name: cmp.Or(o.Reply.Name, name), Holder: Token(o.Reply.Holder), Reserved: o.Reply.Reserved,
			NeverExpires: o.Reply.NeverExpires(), Remaining: max(o.Reply.Remaining, 0), Ahead: max(o.Reply.Position-1, 0), Cause: o.Cause,
		}
	}
	return publicRepeated(o.Err, o.Unknown)
}

// newRequest returns the request for a part, including the token.
func (c *Client) newRequest(w *lockSpec, part int, token string, set *settings) driver.AcquireRequest {
	ttl := max(set.ttl, set.minHold) // so MinHold outlives a crash
	if set.maxHold > 0 {
		ttl = min(ttl, set.maxHold)
	}
	name, with := w.part(part)
	return driver.AcquireRequest{
		Name: name, With: with, Token: token, Client: c.id, TTL: ttl, MinHold: set.minHold, Weight: w.weight, Limit: w.limit,
	}
}

// callAcquireEnd calls the AcquireEnd hooks, then queues the lease's hooks waiting for them. If a
// hook panics or calls runtime.Goexit, no caller receives the lease, so callAcquireEnd unlocks it.
func (a *acquisition) callAcquireEnd(e AcquireEnd, lease *Lease) {
	returned := false
	defer func() {
		if lease == nil {
			return
		}
		lease.l.hooks.acquireEnded(lease.l)
		if !returned {
			_ = lease.Unlock()
		}
	}()
	callHooks(a.hooks, e, func(hooks *Hooks) func(context.Context, AcquireEnd) { return hooks.AcquireEnd })
	returned = true
}
