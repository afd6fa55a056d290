package dibs

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// Attach returns a handle of a lease that another process or call has acquired, by its
// name and token. It does no I/O. Err returns ErrLost until Extend has confirmed the lease,
// although its Context is open from the beginning. From then on the lease is renewed, unless
// Attach was given NoRenew. Unlock releases the lease, confirmed or not. The options are
// Timeout, MaxHold, NoRenew and Observe; any other is ErrInvalid. The label remains that of the
// first owner.
//
// The two handles do not know of each other: each of them renews the lease, and Unlock or
// Client.Close of either releases it for both. The other one finds out at its next renewal.
// To hand a lease over, the first owner calls Lease.Detach as soon as the second one has
// confirmed it. It has acquired the lease with Lock: that of Do cannot be detached.
func (c *Client) Attach(name, token string, options ...Option) (*Lease, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	set := c.defaults.with(atCall, options)
	set.use, set.token, set.minHold = ofAttach, token, 0
	if err := set.check(name); err != nil {
		return nil, err
	}
	if token == "" {
		return nil, invalid("attach to %q: empty token", name)
	}
	if c.work.IsClosed() {
		return nil, ErrClosed
	}
	now := c.clock.Now()
	l := &lease{
		c: c, parent: context.Background(), ownToken: true, handles: 1,
		state: leasestate.Attached(name, token, now, set.ttl, set.noRenew), extra: extraOf(&set, c),
	}
	l.state.Times.LimitHold(0, 0, now, set.maxHold)
	l.hooks = newHookCall(l.parent, lockSpec{kind: KindAttached, name: name}, &set).forLease()
	if l.hooks != nil {
		l.hooks.heldSince, l.hooks.acquireEndDone = now, true
	}
	l.first.l = l
	return &l.first, nil
}

// Inspect returns the state of a name in the store: its holders and its waiters.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	if err := c.checkInspect(name); err != nil {
		return State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	return c.store.Inspect(ctx, name)
}

// Check returns nil if the store answers, and ErrClosed after Close. It is for readiness
// probes: it inspects one name, changes nothing, and takes at most one operation timeout. In a store
// without states, it extends a lease that does not exist. It does not check the options given to New.
func (c *Client) Check(ctx context.Context) error {
	const name = "dibs:check"
	if c.check() == nil && c.work.IsClosed() {
		return ErrClosed
	}
	_, err := c.Inspect(ctx, name)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	request := driver.ExtendRequest{Name: name, Token: c.id + ":check", Client: c.id, TTL: driver.MinTTL}
	until := time.Now().Add(c.defaults.timeout)
	if err := c.store.Extend(ctx, until, []driver.ExtendRequest{request})[0]; !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// listBatch is how many names List inspects together. A loop that ends early has inspected
// as many in vain.
const listBatch = 500

// List yields the state of each held name that matches a glob, in the order of the names:
//
//	for state, err := range locks.List(ctx, "order:*") { … }
//
// The glob may contain *, ?, [a-z], and \ to quote one of these. List inspects up to 500 names
// together, and each such step takes at most one operation timeout. The states are not of one
// moment, and State.Fence may be zero: Inspect returns it. Locks of other libraries are yielded, too: State.Foreign describes them. A name whose
// key holds data of another type is left out. One that the user of the store may not read is
// yielded with State.Err. An error is the last thing that List yields.
func (c *Client) List(ctx context.Context, pattern string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		if err := c.check(); err != nil {
			yield(State{}, err)
			return
		}
		names, err := c.store.List(ctx, pattern)
		if err != nil {
			yield(State{}, err)
			return
		}
		slices.Sort(names)
		for batch := range slices.Chunk(names, listBatch) {
			states, err := c.inspectAll(ctx, batch)
			if err != nil {
				yield(State{}, err)
				return
			}
			for _, state := range states {
				if len(state.Holders) == 0 && state.Waiting == 0 && state.Err == nil { // free by now, or data
					continue
				}
				if !yield(state, nil) {
					return
				}
			}
		}
	}
}

func (c *Client) inspectAll(ctx context.Context, names []string) ([]State, error) {
	if err := c.defaults.checkTimeout(names[0]); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	return c.store.InspectAll(ctx, names)
}

// Revoke ends the lease on a name that has this fence, and grants the name to the next
// waiter. The reason is for the holder: LostError.Message has it. It is one line of at most
// 256 bytes, and may be empty.
//
// Revoke is for an operator who has found the lease with Inspect or in a log. The fence
// makes sure that it cannot end a newer lease than the one that was found. It returns
// false, and changes nothing, if the store has no lease with this fence. Leases of other
// libraries have no fence.
//
// The context of the holder ends with ErrLost and ReasonRevoked when the notification
// arrives. The next waiter holds the lock at once, while the work of the old holder may
// still run: only the fence stops its writes.
//
// Before the first renewal, a third of the TTL after the lease began, Redis may not have
// the fence of an exclusive lease. Inspect then returns zero, and Revoke returns false: try
// again after that time. With NoRenew there is no renewal. Release such a lease by its token
// (see Attach).
func (c *Client) Revoke(ctx context.Context, name string, fence uint64, reason string) (bool, error) {
	if err := c.checkInspect(name); err != nil {
		return false, err
	}
	r := driver.RevokeRequest{Name: name, Fence: fence, Reason: reason}
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	return c.store.Revoke(ctx, r)
}

// checkInspect validates a name and the settings of Inspect and Revoke.
func (c *Client) checkInspect(name string) error {
	if err := cmp.Or(c.check(), driver.CheckName(name)); err != nil {
		return err
	}
	return c.defaults.checkTimeout(name)
}
