package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// Acquire implements driver.Store. It sends the request to all nodes at once. It returns when a
// majority gave the same answer, or when no majority is possible any more. If a majority does not
// answer, the error is driver.ErrUnavailable.
func (s *Store) Acquire(ctx context.Context, q driver.AcquireRequest) (driver.AcquireReply, error) {
	if q.Until.IsZero() {
		q.Until = time.Now().Add(driver.OperationTimeout)
	}
	if err := cmp.Or(s.checkRequest(q), s.checkStart(ctx, "acquire", q.Name, q.Until)); err != nil {
		return driver.AcquireReply{}, err
	}
	c := s.runner.do(ctx, "acquire", q.Name, func(m *core.Machine, c *core.Call, now time.Time) core.Effects { return m.Acquire(c, q, now) })
	return c.Reply, c.Err
}

// Cancel implements driver.Store. Nodes that do not answer get the cancel later, in the background.
func (s *Store) Cancel(ctx context.Context, q driver.AcquireRequest) error {
	if q.Until.IsZero() {
		q.Until = driver.DeadlineOf(ctx)
	}
	if err := s.checkStart(ctx, "cancel", q.Name, q.Until); err != nil {
		return err
	}
	c := s.runner.do(ctx, "cancel", q.Name, func(m *core.Machine, c *core.Call, now time.Time) core.Effects { return m.Cancel(c, q, now) })
	return c.Err
}

// Release implements driver.Store. Nodes that do not answer get the release later, in the
// background.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if r.Until.IsZero() {
		r.Until = time.Now().Add(driver.OperationTimeout)
	}
	if err := s.checkStart(ctx, "release", r.Name, r.Until); err != nil {
		return false, err
	}
	c := s.runner.do(ctx, "release", r.Name, func(m *core.Machine, c *core.Call, now time.Time) core.Effects { return m.Release(c, r, now) })
	return c.OK, c.Err
}

// Resize implements driver.Resizer. If no majority upgrades a reader to a writer, the nodes with
// the upgrade undo it: the lease stays a reader.
func (s *Store) Resize(ctx context.Context, q driver.AcquireRequest) (driver.AcquireReply, error) {
	if q.Until.IsZero() {
		q.Until = driver.DeadlineOf(ctx)
	}
	if err := cmp.Or(s.checkRequest(q), s.checkStart(ctx, "resize", q.Name, q.Until)); err != nil {
		return driver.AcquireReply{}, err
	}
	c := s.runner.do(ctx, "resize", q.Name, func(m *core.Machine, c *core.Call, now time.Time) core.Effects { return m.Resize(c, q, now) })
	return c.Reply, c.Err
}

// Revoke implements driver.Revoker.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	until := driver.DeadlineOf(ctx)
	if err := cmp.Or(driver.CheckRevoke(r), s.checkStart(ctx, "revoke", r.Name, until)); err != nil {
		return false, err
	}
	c := s.runner.do(ctx, "revoke", r.Name, func(m *core.Machine, c *core.Call, now time.Time) core.Effects { return m.Revoke(c, r, until, now) })
	return c.OK, c.Err
}

// Extend implements driver.Store. It sends the request to all nodes. A lease is extended if a
// majority of the nodes extended it. Then the nodes that lost the lease are asked to grant it
// again.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	until := driver.DeadlineOf(ctx)
	if err := s.checkStart(ctx, "extend", "", until); err != nil {
		return slices.Repeat([]error{err}, len(requests))
	}
	c := s.runner.do(ctx, "extend", "", func(m *core.Machine, c *core.Call, now time.Time) core.Effects {
		return m.Extend(c, requests, until, now)
	})
	if c.Err != nil {
		return slices.Repeat([]error{c.Err}, len(requests))
	}
	return c.Errs
}

// NotifyWanted implements driver.WantedNotifier. It queries all nodes, and returns
// driver.ErrUnavailable unless a majority answers. It returns true, or the client receives
// EventWanted, only after a majority reported a waiting request: a cancelled request may still wait
// on a few nodes.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	if err := cmp.Or(driver.CheckWanted(r), s.checkStart(ctx, "notify wanted", r.Name, driver.DeadlineOf(ctx))); err != nil {
		return false, err
	}
	answers, err := queryNodes(ctx, s.nodes, "notify wanted", r.Name, func(ctx context.Context, n driver.Voter) (bool, error) {
		wanted, err := n.NotifyWanted(ctx, r)
		if wanted {
			s.watchers.wantedOn(slices.Index(s.nodes.all, n), r)
		}
		return wanted, err
	})
	return countTrue(valuesOf(answers)) >= s.nodes.majority, err
}

// ReserveFences implements driver.FenceReserver. Each node must be a driver.FenceReserver. All
// nodes increase their high-water mark (the largest fence issued). ReserveFences returns the
// largest mark as the last fence, after a majority stored it. Any two majorities share a node. So
// the fences are larger than those of all earlier grants, and smaller than those of all later
// grants.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	if err := cmp.Or(driver.CheckFences(r), s.checkStart(ctx, "reserve fences", r.Name, driver.DeadlineOf(ctx))); err != nil {
		return driver.FenceReply{}, err
	}
	for {
		request := r // a slow node may read it while the next round begins
		answers, err := queryNodes(ctx, s.nodes, "reserve fences", r.Name, func(ctx context.Context, n driver.Voter) (driver.FenceReply, error) {
			node, ok := n.(driver.FenceReserver)
			if !ok {
				return driver.FenceReply{}, fmt.Errorf("%w: a %T reserves no fences", driver.ErrInvalid, n)
			}
			return node.ReserveFences(ctx, request)
		})
		if err != nil {
			return driver.FenceReply{}, err
		}
		reply, known, refused := largestFence(valuesOf(answers))
		switch {
		case refused >= s.nodes.majority:
			return driver.FenceReply{}, nil
		case len(valuesOf(answers))-refused < s.nodes.majority:
			return driver.FenceReply{}, &driver.UnavailableError{Op: "reserve fences", Name: r.Name, Cause: errSplit}
		case known >= s.nodes.majority:
			s.runner.observe(reply.Last)
			return reply, nil
		}
		r.Least = reply.Last + uint64(r.Count) // all nodes can reach it, and no other request uses it
	}
}

var errSplit = errors.New("neither a majority holds nor a majority refuses")

// largestFence returns the reply with the largest fence, how many nodes have returned this fence,
// and how many do not hold the name.
func largestFence(replies []driver.FenceReply) (largest driver.FenceReply, known, refused int) {
	for _, reply := range replies {
		switch {
		case !reply.Held:
			refused++
		case reply.Last > largest.Last:
			largest, known = reply, 1
		case reply.Last == largest.Last:
			known++
		}
	}
	return largest, known, refused
}

// Inspect implements driver.Inspector. A token that holds the name on a majority of the nodes is a
// holder. State.Nodes contains each node's state, in the order given to New.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := s.checkStart(ctx, "inspect", name, driver.DeadlineOf(ctx)); err != nil {
		return driver.State{}, err
	}
	state, err := s.nodes.inspect(ctx, name)
	s.runner.observe(state.Fence)
	return state, err
}

// InspectAll implements driver.Lister. It queries each node once for all names. Without a deadline
// in ctx, driver.OperationTimeout limits the call.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return nil, err
		}
	}
	if err := s.checkStart(ctx, "inspect", "", driver.DeadlineOf(ctx)); err != nil || len(names) == 0 {
		return nil, err
	}
	states, err := s.nodes.inspectAll(ctx, names)
	var fence uint64
	for _, state := range states {
		fence = max(fence, state.Fence)
	}
	s.runner.observe(fence)
	return states, err
}

// List implements driver.Lister. It returns the names held on a majority of the nodes.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	if err := s.checkStart(ctx, "list", "", driver.DeadlineOf(ctx)); err != nil {
		return nil, err
	}
	return s.nodes.list(ctx, pattern)
}

func (s *Store) checkRequest(q driver.AcquireRequest) error {
	switch {
	case !q.Exclusive() && q.Limit != driver.Unlimited && len(s.nodes.all) > 1:
		return fmt.Errorf("%w: acquire %q: a quorum does not support semaphore permits, because two majorities may each see room for the last one", driver.ErrInvalid, q.Name)
	case len(q.With) > 0:
		return fmt.Errorf("%w: acquire %q and others: a quorum acquires one name at a time", driver.ErrInvalid, q.Name)
	case s.config.RecoveryWindow > 0 && q.TTL > s.config.RecoveryWindow && q.MinHold == q.TTL:
		return fmt.Errorf("%w: acquire %q: an interval or MinHold of %v exceeds the longest TTL of this quorum, %v; use a shorter one, or another store", driver.ErrInvalid, q.Name, q.TTL, s.config.RecoveryWindow)
	case s.config.RecoveryWindow > 0 && q.TTL > s.config.RecoveryWindow:
		return fmt.Errorf("%w: acquire %q: TTL %v exceeds the MaxTTL %v of this quorum; give quorum.New the same larger MaxTTL in all clients", driver.ErrInvalid, q.Name, q.TTL, s.config.RecoveryWindow)
	}
	return driver.CheckAcquire(q)
}

var errZero = fmt.Errorf("%w: the quorum.Store is a zero value: make it with quorum.New", driver.ErrInvalid)

var errExpired = errors.New("the request expired before it was served")

// checkStart returns an error if an operation cannot begin: nothing is sent then.
func (s *Store) checkStart(ctx context.Context, op, name string, until time.Time) error {
	if len(s.nodes.all) == 0 {
		return errZero
	}
	var cause error
	switch {
	case s.runner.ctx.Err() != nil:
		cause = errClosed
	case ctx.Err() != nil:
		cause = context.Cause(ctx)
	case !time.Now().Before(until):
		cause = errExpired
	default:
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: cause}
}
