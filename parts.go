package dibs

import (
	"cmp"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// A multi-lock can be acquired in parts, each with its own lease.

// acquireParts acquires all parts in order. If it fails, the call holds none. err is an ended
// lease's error.
func (a *acquisition) acquireParts() (outcome acquire.Outcome, err error) {
	for i := range a.spec.parts() {
		if a.later != nil {
			a.later.Set(a.spec.groups[i+1:])
		}
		if outcome, err = a.acquirePart(i); outcome.Why != acquire.Granted || err != nil {
			a.drop()
			return outcome, err
		}
	}
	if a.spec.parts() > 1 {
		if err = beginWhole(a.lease, &a.settings); err != nil {
			a.drop()
		}
	}
	return outcome, err
}

// acquirePart acquires a part and adds it to the lease. After a failure, the next attempt at the
// first part repeats the same request.
func (a *acquisition) acquirePart(i int) (acquire.Outcome, error) {
	if !a.call.HasBegun() {
		a.call.Begin(a.c.acquirer, a.c.newRequest(&a.spec, i, a.token(i), &a.settings), a.limits(), a.ownToken())
	}
	var queued func(driver.AcquireReply)
	if a.hooks != nil {
		queued = a.callQueued
	}
	grant, outcome := a.call.Run(a.ctx, queued)
	if outcome.Why != acquire.Granted {
		return outcome, nil
	}
	l, err := a.newLease(&grant)
	a.call.End(a.ctx, err == nil)
	switch {
	case err != nil:
		return outcome, err
	case a.lease == nil:
		a.lease, a.grant = l, grant
		return outcome, nil
	}
	if grant.Notified {
		a.grant.Notified, a.grant.Handoff = true, grant.Handoff
	}
	return outcome, a.lease.merge(l)
}

// drop cancels the held parts, and the request for the next part. Another attempt uses another
// token, because a late cancel must not end its leases.
func (a *acquisition) drop() {
	if a.lease == nil {
		return
	}
	a.call.End(a.ctx, false)
	a.lease.cancel()
	a.lease = nil
}

// merge adds the names in another lease with the same token. It returns an error if part or l is
// already lost. Even then the names belong to l, so cancel releases all of them.
func (l *lease) merge(part *lease) error {
	s := part.LockState()
	lost, other := part.errLocked(), *s
	s.GiveAway()
	l.c.renewals.Remove(part)
	part.UnlockState()
	l.c.partlyLost.remove(part) // l releases its names
	ended := l.update(func(s *leasestate.State) { s.Merge(&other) })
	return cmp.Or(ended, lost)
}

// beginWhole starts the whole lease: from now on the caller's settings apply.
func beginWhole(l *lease, set *settings) error {
	now := l.c.clock.Now()
	return l.update(func(s *leasestate.State) {
		if s.Reason().IsEnd() {
			return
		}
		s.Times.BeginWhole(now, set.minHold, set.maxHold, set.noRenew)
		if l.hooks != nil {
			l.hooks.heldSince = now
		}
	})
}
