package quorum

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// maxShown is the maximum number of holders and waiters in a state.
const maxShown = 100

// merge combines a name's states on the nodes into a single state, which also contains them. A
// token with a majority's votes is a holder. A token that holds the name on fewer nodes is reported
// as a waiter.
func (s nodes) merge(name string, on []driver.NodeState) driver.State {
	out := driver.State{Name: name, Nodes: on}
	var states []driver.State
	for _, n := range on {
		if n.Err == nil {
			states = append(states, n.State)
			out.Fence = max(out.Fence, n.State.Fence)
		}
	}
	var holds map[string]bool
	out.Foreign = s.mergeForeign(states)
	out.Holders, holds = s.mergeHolders(states)
	out.Waiters = s.mergeWaiters(states, holds)
	out.Holding = max(len(out.Holders), s.onMajority(states, func(n driver.State) int { return hidden(n.Holding, len(n.Holders)) }))
	out.Waiting = max(len(out.Waiters), s.onMajority(states, func(n driver.State) int { return hidden(n.Waiting, len(n.Waiters)) }))
	out.Holders = out.Holders[:min(len(out.Holders), maxShown)]
	out.Waiters = out.Waiters[:min(len(out.Waiters), maxShown)]
	return out
}

// hidden returns a number if the list it counts is incomplete, and 0 otherwise.
func hidden(all, shown int) int {
	if all > shown {
		return all
	}
	return 0
}

// onMajority returns the largest number that a majority of the nodes reaches.
func (s nodes) onMajority(states []driver.State, number func(driver.State) int) int {
	var all []int
	for _, state := range states {
		all = append(all, number(state))
	}
	if len(all) < s.majority {
		return 0
	}
	slices.Sort(all)
	return all[len(all)-s.majority]
}

// mergeForeign returns the value that dibs did not write, if a majority returns the same. A quorum
// cannot end it.
func (s nodes) mergeForeign(states []driver.State) *driver.Foreign {
	type what struct {
		key, kind string
		lock      bool
	}
	var known map[what]int
	for _, state := range states {
		f := state.Foreign
		if f == nil {
			continue
		}
		if known == nil {
			known = make(map[what]int)
		}
		of := what{f.Key, f.Kind, f.Lock}
		if known[of]++; known[of] == s.majority {
			merged := *f
			merged.Mark = nil
			return &merged
		}
	}
	return nil
}

// A holderID identifies a holder on all nodes. A lease and its reservation are different holders.
type holderID struct {
	token    string
	reserved bool
}

// mergeHolders returns the holders with a majority of votes, sorted by expiry, and their tokens.
func (s nodes) mergeHolders(states []driver.State) (holders []driver.Holder, holds map[string]bool) {
	entries := make(map[holderID][]driver.Holder)
	for _, state := range states {
		for _, h := range state.Holders {
			id := holderID{h.Token, h.Reserved}
			entries[id] = append(entries[id], h)
		}
	}
	holds = make(map[string]bool)
	for id, on := range entries {
		if len(on) >= s.majority {
			holders = append(holders, s.mergeHolder(on))
			holds[id.token] = true
		}
	}
	slices.SortFunc(holders, func(a, b driver.Holder) int {
		return cmp.Or(cmp.Compare(left(a), left(b)), cmp.Compare(a.Token, b.Token))
	})
	return holders, holds
}

// left returns a holder's remaining time, or the longest time for a holder that never expires.
func left(h driver.Holder) time.Duration {
	if h.NeverExpires() {
		return math.MaxInt64
	}
	return h.Remaining
}

// mergeHolder combines a holder's entries on several nodes. Its remaining time is how long it has a
// majority of votes.
func (s nodes) mergeHolder(on []driver.Holder) driver.Holder {
	h := mostCommon(on, func(h driver.Holder) int { return h.Weight }) // a few nodes may have missed a resize
	slices.SortFunc(on, func(a, b driver.Holder) int { return cmp.Compare(left(b), left(a)) })
	h.Remaining = on[s.majority-1].Remaining
	// A single node may have issued a larger fence, which is not the lease's; Revoke with this
	// fence would miss the other nodes.
	h.Fence = mostCommon(on, func(h driver.Holder) uint64 { return h.Fence }).Fence
	return h
}

// mostCommon returns an entry with the most common value; if there are several such values, the
// largest.
func mostCommon[V cmp.Ordered](on []driver.Holder, value func(driver.Holder) V) driver.Holder {
	count := func(v V) (n int) {
		for _, h := range on {
			if value(h) == v {
				n++
			}
		}
		return n
	}
	return slices.MaxFunc(on, func(a, b driver.Holder) int {
		return cmp.Or(cmp.Compare(count(value(a)), count(value(b))), cmp.Compare(value(a), value(b)))
	})
}

// A queueEntry is a waiter on several nodes.
type queueEntry struct {
	driver.Waiter
	exact            bool // a node stores it as a waiter, not as a holder
	positions, lists int  // sum of its positions in all lists, and the number of lists
}

// mergeWaiters returns the tokens that wait on a majority of the nodes, or hold the name on too few
// nodes. They are sorted by their average positions.
func (s nodes) mergeWaiters(states []driver.State, holds map[string]bool) (waiters []driver.Waiter) {
	entries := make(map[string]*queueEntry)
	for _, state := range states {
		var all []queueEntry
		for _, h := range state.Holders {
			if !h.Reserved {
				all = append(all, queueEntry{Waiter: waiterOf(h)})
			}
		}
		for _, w := range state.Waiters {
			all = append(all, queueEntry{Waiter: w, exact: true})
		}
		all = slices.DeleteFunc(all, func(e queueEntry) bool { return holds[e.Token] })
		for i, one := range all {
			e := entries[one.Token]
			if e == nil {
				e = &queueEntry{Waiter: one.Waiter, exact: one.exact}
				entries[one.Token] = e
			}
			waited := max(e.Waited, one.Waited)
			if one.exact && !e.exact {
				e.Waiter, e.exact = one.Waiter, true
			}
			e.Waited = waited
			e.positions, e.lists = e.positions+i, e.lists+1
		}
	}
	order := slices.SortedFunc(maps.Values(entries), func(a, b *queueEntry) int {
		return cmp.Or(cmp.Compare(a.positions*b.lists, b.positions*a.lists), cmp.Compare(a.Token, b.Token))
	})
	for _, e := range order {
		if e.lists >= s.majority {
			waiters = append(waiters, e.Waiter)
		}
	}
	return waiters
}

// waiterOf converts a holder on too few nodes to a waiter. Its limit is 1 if the lease is exclusive
// and its limit is unknown.
func waiterOf(h driver.Holder) driver.Waiter {
	w := driver.Waiter{Token: h.Token, Label: h.Label, Kind: h.Kind, Weight: h.Weight, Limit: h.Limit}
	if h.Exclusive() {
		w.Limit = max(w.Limit, 1)
		w.Weight = w.Limit
	}
	return w
}
