package dibs

import "context"

// A derivedContext is a context that ends with a lease.
type derivedContext struct {
	cancel context.CancelCauseFunc
	index  int // in derivedContexts, or -1
}

// derivedContexts are the contexts that end with a lease, which has a lock for them. To
// remove one takes constant time.
type derivedContexts []*derivedContext

func (d *derivedContexts) add(b *derivedContext) {
	b.index = len(*d)
	*d = append(*d, b)
}

// remove removes a context, if it is among them.
func (d *derivedContexts) remove(b *derivedContext) {
	if b.index < 0 {
		return
	}
	all, last := *d, len(*d)-1
	all[b.index] = all[last]
	all[b.index].index = b.index
	all[last] = nil
	*d = all[:last]
	b.index = -1
}

// removeAll removes all contexts and returns them.
func (d *derivedContexts) removeAll() []*derivedContext {
	all := *d
	*d = nil
	for _, b := range all {
		b.index = -1
	}
	return all
}
