package dibs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// Attach returns a Lease for a lock that another process or call acquired. The handle identifies
// the lock by its names and owner token. Attach raises the lease's remaining time in the store to
// TTL, in a single request; it never shortens a lease. The Client then renews the lease. The new
// Lease has the handle's fences and the first owner's label. ctx limits only this call, not the
// lease.
//
// Attach accepts the options TTL, Timeout, MaxHold, NoRenew and Observe, and returns ErrInvalid for
// any other. It returns a *LostError if the lease ended, even if MinHold (a minimum time) still
// keeps the name unavailable. It returns ErrUnavailable if the store does not answer before ctx or
// the operation timeout ends. After an ErrUnavailable the lease lasts as long as before or longer,
// and the caller can attach again.
//
// The two leases are independent: each renews the lock, and Unlock or Client.Close on either
// releases it for both. The other lease detects the loss at its next renewal. To hand a lock over,
// the first owner should call Lease.Detach as soon as the second owner attached. A lease from Do
// cannot be detached. Detach also ends the first owner's MinHold: Unlock of the attached lease then
// frees the name at once.
//
// Attach finds the lease by its token. If the application used the same OwnerToken for a newer
// lease on the name, Attach attaches to the newer lease. The newer lease's fence in the store is
// then larger than the handle's.
func (c *Client) Attach(ctx context.Context, handle Handle, options ...Option) (*Lease, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	set := c.defaults.with(atCall, options)
	set.places[atCall], set.token, set.minHold = toAttach, handle.token, 0
	if err := cmp.Or(handle.check(), set.check(handle.first())); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("dibs: attach to %q: %w", handle.first(), context.Cause(ctx))
	}
	if !c.beginAcquire(continuesWork(ctx, c)) {
		return nil, ErrClosed
	}
	defer c.endAcquire()
	l := c.newAttached(ctx, handle, &set)
	if err := l.attach(ctx, &set); err != nil {
		return nil, err
	}
	return &l.first, nil
}

// newAttached returns a handle's lease, not yet confirmed by the store.
func (c *Client) newAttached(ctx context.Context, handle Handle, set *settings) *lease {
	now := c.clock.Now()
	l := &lease{
		c: c, parent: ctx, ownToken: true, handles: 1,
		state: leasestate.Attached(handle.names, handle.token, now, set.ttl), extra: extraOf(set, c),
	}
	l.first.l = l
	l.state.Times.LimitHold(0, 0, now, set.maxHold)
	info := lockSpec{kind: KindAttached, name: handle.first()}
	for _, n := range handle.names[1:] {
		info.with = append(info.with, n.Name)
	}
	l.hooks = newHookCall(ctx, c.id, info, set).forLease()
	if l.hooks != nil {
		l.hooks.heldSince, l.hooks.acquireEndDone = now, true
	}
	return l
}

// errLateAttach is no loss: the first owner can still hold the lease.
var errLateAttach = errors.New("the store answered after the TTL had passed: use a longer TTL on this network")

// attach extends a new lease in the store, and starts its renewal.
func (l *lease) attach(ctx context.Context, set *settings) error {
	sent, ttl, lost, err := l.requestExtension(ctx, set.ttl)
	switch {
	case errors.Is(err, ErrLost):
		return lostError(leasestate.MissingEnd(lost, err), l.state.Token)
	case err != nil:
		return err
	}
	now := l.c.clock.Check()
	if now >= sent+ttl-clock.Margin(ttl) {
		return &UnavailableError{Op: "extend", Name: l.state.Name, Cause: errLateAttach, Unknown: true}
	}
	l.holdToken()
	err = l.update(func(s *leasestate.State) {
		s.Times.Begin(set.noRenew, now, sent, ttl, false, clock.Jitter(s.Name, now))
	})
	if err != nil {
		l.dropToken().End()
	}
	return err
}
