package loadsim

import "time"

// Holdable returns how many of the plan's leases a perfect schedule can hold from a time on. It
// knows the future, sends only renewals, none twice, and those in the order of the deadlines.
// Each lease must be renewed once within its TTL without the safety margin. So in each such
// window the processor must have the time for all of them. If it has, it is enough to renew
// them in turn.
func Holdable(p Plan, from time.Duration) int {
	p = p.withDefaults()
	const every = 10 * time.Millisecond
	processor := newProcessor(p.Events)
	window := p.TTL - p.TTL/50
	least := processor.available(from, from+window)
	for at := from; at+window <= p.Duration; at += every {
		least = min(least, processor.available(at, at+window))
	}
	return min(int(least/p.Costs.renewal()), p.leases())
}
