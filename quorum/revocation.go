package quorum

import (
	"slices"

	"github.com/dibslock/dibs/driver"
)

// revocations counts the nodes that reported a lease's revocation, by token. The nodes' fences
// differ: a node that revokes a lease by its token reports its last issued fence. It is not safe
// for concurrent use.
type revocations map[string][]uint64 // by node: its event's fence, or zero

// reported records a node's event. If it completes a majority, the client's event contains this
// majority's largest fence: at least one of its nodes stored the lease's fence.
func (r revocations) reported(node, nodes, majority int, e driver.Event) (driver.Event, bool) {
	const kept = 1000 // more are dropped, which costs latency only
	by := r[e.Token]
	switch {
	case by == nil && len(r) >= kept:
		clear(r)
		fallthrough
	case by == nil:
		by = make([]uint64, nodes)
		r[e.Token] = by
	case by[node] >= e.Fence:
		return e, false // the event came twice
	case by[node] != 0:
		clear(by) // for an earlier lease with this token
	}
	by[node] = e.Fence
	count := 0
	for _, fence := range by {
		if fence != 0 {
			count++
		}
	}
	if count == nodes {
		delete(r, e.Token)
	}
	e.Fence = slices.Max(by)
	return e, count == majority
}
