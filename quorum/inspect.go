package quorum

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// nodes are the stores of a quorum.
type nodes struct {
	all      []driver.Voter
	majority int
}

// inspect returns the state of a name. A token with the votes of a majority is a holder.
func (s nodes) inspect(ctx context.Context, name string) (driver.State, error) {
	states, err := queryNodes(ctx, s, "inspect", name, func(ctx context.Context, n driver.Voter) (driver.State, error) { return n.Inspect(ctx, name) })
	if err != nil {
		return driver.State{}, err
	}
	return s.merge(name, states), nil
}

// A holderID identifies a holder on all nodes. A lease and what it has reserved are
// different holders.
type holderID struct {
	token    string
	reserved bool
}

// merge combines the states of a majority of the nodes into one. A token that holds the
// lock on fewer nodes is reported as a waiter.
func (s nodes) merge(name string, states []driver.State) driver.State {
	out := driver.State{Name: name}
	entries := make(map[holderID][]driver.Holder)
	for _, state := range states {
		out.Fence = max(out.Fence, state.Fence)
		for _, h := range state.Holders {
			id := holderID{h.Token, h.Reserved}
			entries[id] = append(entries[id], h)
		}
	}
	holds := make(map[string]bool)
	for id, on := range entries {
		if len(on) >= s.majority {
			out.Holders = append(out.Holders, s.mergeHolder(on))
			holds[id.token] = true
		}
	}
	slices.SortFunc(out.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Remaining, b.Remaining) })
	type entry struct {
		driver.Waiter
		positions, lists int // sum of its positions in all lists, and the number of those lists
	}
	waiters := make(map[string]*entry)
	for _, state := range states {
		var all []driver.Waiter
		for _, h := range state.Holders {
			if !holds[h.Token] && !h.Reserved {
				all = append(all, driver.Waiter{Token: h.Token, Label: h.Label})
			}
		}
		for i, w := range append(all, state.Waiters...) {
			if holds[w.Token] {
				continue
			}
			e := waiters[w.Token]
			if e == nil {
				e = &entry{Waiter: w}
				waiters[w.Token] = e
			}
			e.Waited = max(e.Waited, w.Waited)
			e.positions, e.lists = e.positions+i, e.lists+1
		}
	}
	order := slices.SortedFunc(maps.Values(waiters), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.positions*b.lists, b.positions*a.lists), cmp.Compare(a.Token, b.Token))
	})
	for _, e := range order {
		if e.lists >= s.majority {
			out.Waiters = append(out.Waiters, e.Waiter)
		}
	}
	out.Holding, out.Waiting = len(out.Holders), len(out.Waiters)
	return out
}

// mergeHolder combines the entries of one holder on several nodes. Its remaining time is
// how long it has a majority of votes.
func (s nodes) mergeHolder(on []driver.Holder) driver.Holder {
	slices.SortFunc(on, func(a, b driver.Holder) int { return cmp.Compare(b.Remaining, a.Remaining) })
	h := on[s.majority-1]
	h.Fence = commonFence(on)
	return h
}

// commonFence returns the fence that most nodes have for a lease. One node may have
// issued a larger fence, which is not the lease's; Revoke with that fence would miss the
// other nodes.
func commonFence(on []driver.Holder) (fence uint64) {
	known := make(map[uint64]int)
	for _, h := range on {
		known[h.Fence]++
	}
	for f, n := range known {
		if n > known[fence] || n == known[fence] && f > fence {
			fence = f
		}
	}
	return fence
}

// list returns the names that are held on a majority of the nodes.
func (s nodes) list(ctx context.Context, pattern string) ([]string, error) {
	lists, err := queryNodes(ctx, s, "list", "", func(ctx context.Context, n driver.Voter) ([]string, error) { return n.List(ctx, pattern) })
	if err != nil {
		return nil, err
	}
	votes := make(map[string]int)
	var names []string
	for _, list := range lists {
		for _, name := range list {
			if votes[name]++; votes[name] == s.majority {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// queryNodes calls query for all nodes and returns the values of those that answer in
// time: at least a majority.
func queryNodes[T any](ctx context.Context, s nodes, op, name string, query func(context.Context, driver.Voter) (T, error)) ([]T, error) {
	type reply struct {
		node  int
		value T
		err   error
	}
	replies := make(chan reply, len(s.all))
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	for i, n := range s.all {
		go func() {
			v, err := query(ctx, n)
			replies <- reply{i, v, err}
		}()
	}
	errs := make([]error, len(s.all))
	for i := range errs {
		errs[i] = core.ErrNoAnswer
	}
	var values []T
	var stragglers <-chan time.Time
	for range s.all {
		select {
		case r := <-replies:
			if errs[r.node] = r.err; r.err == nil {
				values = append(values, r.value)
			}
		case <-stragglers:
			return values, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("%w", core.Unavailable(op, name, errs))
		}
		if len(values) == s.majority {
			stragglers = time.After(core.StragglerTimeout)
		}
	}
	if len(values) < s.majority {
		return nil, core.Unavailable(op, name, errs)
	}
	return values, nil
}
