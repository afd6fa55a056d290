package dibs

import "context"

// A derivedContext is a context that ends with a lease.
type derivedContext struct {
	context.Context
	cancel         context.CancelCauseFunc
	previous, next *derivedContext // in derivedContexts
	listed         bool
}

// derivedContexts is the list of the contexts that end with a lease, which has a lock for
// it. To remove one takes constant time. An empty list is small, because most leases
// derive no context.
type derivedContexts struct {
	first *derivedContext
}

func (d *derivedContexts) add(b *derivedContext) {
	b.next, b.listed = d.first, true
	if d.first != nil {
		d.first.previous = b
	}
	d.first = b
}

// remove removes a context, if it is in the list.
func (d *derivedContexts) remove(b *derivedContext) {
	if !b.listed {
		return
	}
	if b.previous != nil {
		b.previous.next = b.next
	} else {
		d.first = b.next
	}
	if b.next != nil {
		b.next.previous = b.previous
	}
	b.previous, b.next, b.listed = nil, nil, false
}

// removeAll removes all contexts and returns them.
func (d *derivedContexts) removeAll() (all []*derivedContext) {
	for d.first != nil {
		all = append(all, d.first)
		d.remove(d.first)
	}
	return all
}
