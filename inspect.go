package dibs

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/dibslock/dibs/driver"
)

// Attach returns a handle of a lease that was acquired elsewhere, in another
// process or call, by its name and token. It does no I/O: the lease counts as not
// held until Extend has confirmed it, and is renewed from then on (unless with
// NoRenew); Unlock releases it, confirmed or not. The first owner does not notice
// that another one renews: agree who does. If the other one releases it, the first
// owner's Unlock says ErrLost; and a Client that is closed releases its leases.
func (c *Client) Attach(name, token string, options ...Option) (*Lease, error) {
	set := c.defaults.with(options)
	set.token = token
	if err := set.check(name); err != nil {
		return nil, err
	}
	if token == "" {
		return nil, invalid("attach to %q: empty token", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	h := &leaseState{
		c: c, parent: context.Background(), name: name, token: token, hooks: set.hooks, timeout: set.timeout,
		ownToken: true, weight: 1, limit: driver.Unlimited, // for all that is known
		acquiredAt: c.now(), maxHoldUntil: never, renewAt: never, ttl: set.ttl, index: -1, handles: 1,
	}
	h.resizing = 1
	h.err = &LostError{Name: name, Token: token, Reason: ReasonUnconfirmed}
	if set.noRenew {
		h.rule = fixed
	}
	if set.maxHold > 0 {
		h.maxHoldUntil = h.acquiredAt + set.maxHold
	}
	h.first.h, h.acquiredHookDone = h, true
	return &h.first, nil
}

// Inspect returns who holds a name and who waits for it, as the store sees it.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	if err := c.defaults.checkInspect(name); err != nil {
		return State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	return c.store.Inspect(ctx, name)
}

// Check returns nil if the store answers, and ErrClosed after Close: for readiness probes.
// It asks for the state of a name, changes nothing, and takes one operation timeout at most.
func (c *Client) Check(ctx context.Context) error {
	select {
	case <-c.closing:
		return ErrClosed
	default:
	}
	_, err := c.Inspect(ctx, "dibs:check")
	return err
}

// List returns the state of each name that matches a glob (*, ?, [a-z], and \ to
// quote one of these) and is held, in the order of the names. It
// looks at one name after another, so the whole is not of one moment. A name whose
// key holds another kind of value is left out.
func (c *Client) List(ctx context.Context, pattern string) ([]State, error) {
	names, err := c.store.List(ctx, pattern)
	if err != nil {
		return nil, err
	}
	states := make([]State, 0, len(names))
	for _, name := range names {
		state, err := c.Inspect(ctx, name)
		if errors.Is(err, ErrWrongType) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(state.Holders) > 0 || state.Waiting > 0 {
			states = append(states, state)
		}
	}
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Name, b.Name) })
	return states, nil
}

// Break ends the holding of a name that has this fence, whoever has it, and hands
// the name on: for an operator who has seen in Inspect, or in a log, who is in the
// way. Being conditional on the fence, it cannot end a newer holding than the one
// that was seen. It reports false, and changes nothing, if no holding is known to
// have the fence. Other libraries' holdings have none.
//
// The holder's context ends with ErrLost, why Revoked, as soon as the message
// arrives. The next in line holds at once, while the old holder's work may still be
// running: only the fence stops its writes.
//
// The fence of a young lease, which was not renewed since it was granted, is known to a
// Redis store only as long as no other name of the same hash slot was taken since, and
// not at all if its token is of the user's own making.
func (c *Client) Revoke(ctx context.Context, name string, fence uint64) (bool, error) {
	if err := c.defaults.checkInspect(name); err != nil {
		return false, err
	}
	if fence == 0 {
		return false, invalid("break %q: fence 0", name)
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	return c.store.Revoke(ctx, name, fence)
}

// broken ends the lease that an event says was broken, all of it if it holds several
// names. The caller holds c.mu, and calls tell without it.
func (c *Client) revokedLease(e driver.Event) leaseEnd {
	for _, h := range c.leases {
		if h.token != e.Token {
			continue
		}
		for _, p := range append([]fencedName{{h.name, h.fence}}, h.moreNames...) {
			if p.fence <= e.Fence { // not if an earlier holding of the token was broken
				return h.end(p.name, ReasonRevoked, nil)
			}
		}
	}
	return leaseEnd{}
}
