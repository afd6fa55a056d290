package loadsim

import "time"

// Holdable returns how many of the plan's leases a perfect schedule can hold from a given time on.
// It knows the future, and sends each renewal once, in the order of the deadlines, and nothing
// more. Each lease must be renewed once within its TTL without the safety margin. So in each such
// window the processor needs time for all. Then renewing them in turn is enough.
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
