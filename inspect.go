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

// Inspect returns the state of a name in the store: its holders and its waiters.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	if err := c.checkInspect(name); err != nil {
		return State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.defaults.timeout)
	defer cancel()
	state, err := c.store.Inspect(ctx, name)
	return stateOf(state), public(err)
}

// Check returns nil if the store answers, and ErrClosed after Close. It is for readiness
// probes: it inspects one name, changes nothing, and takes at most one operation timeout. In a store
// without states, it extends a lease that does not exist. If an option given to New is invalid, Check
// returns ErrInvalid and sends nothing.
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
				if len(state.Holders) == 0 && state.Waiting == 0 && state.Err == nil { // free by now, or data
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

// Revoke ends the lease of a holder of the name, which Inspect has returned, and grants the name to the
// next waiter. The reason is for the holder: LostError.Message has it. It is one line of at most 256
// bytes, and may be empty.
//
// The fence of the holder says which lease that is, or its token if it has no fence. So an operator who
// has the fence from a log can pass Holder{Fence: fence}. Revoke never ends a newer lease than the one
// that was found. It returns false, and changes nothing, if the store has no such lease. That is also
// so for a holder without a fence whose token says nothing of its client, as those of other libraries.
//
// The context of the holder ends with ErrLost and ReasonRevoked when the notification arrives. The
// next waiter holds the lock at once, while the work of the old holder may still run: only the fence
// stops its writes.
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

// checkInspect validates a name and the settings of Inspect and Revoke.
func (c *Client) checkInspect(name string) error {
	if err := cmp.Or(c.check(), driver.CheckName(name)); err != nil {
		return err
	}
	return c.defaults.checkTimeout()
}
