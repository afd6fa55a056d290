package quorum

import (
	"slices"

	"github.com/dibslock/dibs/driver"
)

// revocations counts the nodes that have reported the revocation of a lease, by token. The
// fences of the nodes differ: a node that revokes a lease by its token reports the last fence
// that it has issued. It is not safe for concurrent use.
type revocations map[string][]uint64 // by node: the fence of its event, or zero

// reported records the event of a node. If it completes a majority, the event for the client
// has the largest fence of that majority: at least one of its nodes has stored the fence of
// the lease.
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
		clear(by) // of an earlier lease with this token
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
