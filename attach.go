package dibs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// Attach returns a lease that another process or call has acquired, by its handle. It extends the
// lease at the store by TTL, in one request, and renews it from then on. It never shortens a lease.
// The options are TTL, Timeout, MaxHold, NoRenew and Observe; any other is ErrInvalid. The lease has
// the fences of the handle, and the label of its first owner.
//
// Attach returns a *LostError if the store no longer has the lease, also if it is only reserved by
// MinHold, and ErrUnavailable if the store does not answer in time. Attach then leaves nothing behind:
// the lease lasts as long as before or longer, and Attach may be called again. The limits are ctx and
// the operation timeout. ctx does not limit the lease.
//
// The two leases do not know of each other: each of them renews the lock, and Unlock or Client.Close
// of either releases it for both. The other one detects that at its next renewal. To hand a lock over,
// the first owner calls Lease.Detach as soon as the second one has attached. The function of Do has no
// lease that can be detached. The first owner's MinHold ends with Detach: an Unlock of the attached
// lease frees the name at once.
//
// A token identifies an owner. If the application gives a chosen token to another lease on the name,
// Attach attaches to that lease: its fence is larger than that of the handle.
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

// newAttached returns the lease of a handle, before the store has confirmed it.
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

// errLateAttach is no loss: the first owner may still hold the lease.
var errLateAttach = errors.New("the store answered after the TTL had passed: use a longer TTL on this network")

// attach extends a new lease at the store, and begins its renewal.
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
