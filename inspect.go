package dibs

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Inspect returns a name's state in the store: its holders and its waiters. It changes nothing and
// takes at most the Client's operation timeout. It returns ErrInvalid for an invalid name,
// ErrUnavailable if the store does not answer, and errors.ErrUnsupported if the store cannot show
// states.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	if err := c.checkInspect(name); err != nil {
		return State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	state, err := c.store.Inspect(ctx, name)
	return stateOf(state), public(err)
}

// Check returns nil if the store answers, otherwise ErrUnavailable, and ErrClosed after Close. It
// is for readiness probes: it changes nothing, and takes at most the Client's operation timeout.
// Check inspects the name dibs:check. If the store cannot inspect names, Check extends a
// nonexistent lease instead. If an option given to New is invalid, Check returns ErrInvalid and
// sends nothing.
func (c *Client) Check(ctx context.Context) error {
	const name = "dibs:check"
	switch err := c.check(); {
	case err != nil:
		return err
	case c.work.IsClosed():
		return ErrClosed
	}
	if err := c.defaults.checkDefaults(); err != nil {
		return err
	}
	_, err := c.Inspect(ctx, name)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	request := driver.ExtendRequest{Name: name, Token: c.id + ":check", Client: c.id, TTL: driver.MinTTL}
	until := time.Now().Add(c.defaults.timeout)
	if err := c.store.Extend(ctx, until, []driver.ExtendRequest{request})[0]; !errors.Is(err, ErrLost) {
		return public(err)
	}
	return nil
}

// listBatch is the number of names List inspects together. A loop that ends early wastes at most
// this many.
const listBatch = 500

// List yields the state of each name with holders or waiters that matches a glob, in name order:
//
//	for state, err := range locks.List(ctx, "order:*") { … }
//
// The glob can contain *, ?, [a-z], and \ to quote these characters. List inspects up to 500 names
// together, and each such step takes at most one operation timeout. The states are from different
// moments. In the list, State.Fence may be zero although the name has a fence: Inspect returns it.
//
// Other libraries' locks are also listed, with State.Foreign. A name that the store's user may not
// read is listed with State.Err. List skips keys with other data. If List yields an error, the list
// ends.
func (c *Client) List(ctx context.Context, pattern string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		if err := c.check(); err != nil {
			yield(State{}, err)
			return
		}
		names, err := c.store.List(ctx, pattern)
		if err != nil {
			yield(State{}, public(err))
			return
		}
		slices.Sort(names)
		for batch := range slices.Chunk(names, listBatch) {
			states, err := c.inspectAll(ctx, batch)
			if err != nil {
				yield(State{}, public(err))
				return
			}
			for _, state := range states {
				if len(state.Holders) == 0 && state.Waiting == 0 && state.Err == nil { // already free, or data
					continue
				}
				if !yield(stateOf(state), nil) {
					return
				}
			}
		}
	}
}

func (c *Client) inspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	if err := c.defaults.checkTimeout(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	return c.store.InspectAll(ctx, names)
}

// Revoke ends the lease of a holder returned by Inspect, and grants the name to the next waiter.
// The holder finds the reason in LostError.Message. The reason is a line of at most 256 bytes, or
// empty.
//
// The holder's fence identifies the lease. So an operator can pass Holder{Fence: fence} with a
// fence from a log. If the fence is zero, the holder's token identifies the lease. The token must
// then contain its client's identity, as a token made by dibs does. For any other token, such as
// another library's, Revoke returns false.
//
// Revoke never ends a newer lease. If the store has no such lease, Revoke returns false and changes
// nothing. It takes at most the Client's operation timeout.
//
// The next waiter holds the lock at once. The revoked holder's context ends with ErrLost and
// ReasonRevoked when the notification arrives, so its work may still run for a moment. Only a
// resource that compares fences rejects its writes in this time.
func (c *Client) Revoke(ctx context.Context, name string, holder Holder, reason string) (bool, error) {
	if err := c.checkInspect(name); err != nil {
		return false, err
	}
	r := driver.RevokeRequest{Name: name, Fence: holder.Fence, Reason: reason}
	if r.Fence == 0 {
		r.Token = string(holder.Token)
	}
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	done, err := c.store.Revoke(ctx, r)
	return done, public(err)
}

// checkInspect validates a name and the settings for Inspect and Revoke.
func (c *Client) checkInspect(name string) error {
	if err := cmp.Or(c.check(), driver.CheckName(name)); err != nil {
		return err
	}
	return c.defaults.checkTimeout()
}
