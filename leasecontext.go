package dibs

import (
	"context"
	"fmt"
)

// Context returns a context that ends with the lease, with cause ErrLost if the lease was
// lost. It has the values of the context given to Lock, but not its deadline or
// cancellation, which limit the waiting only.
func (handle *Lease) Context() context.Context {
	if handle.isZero() {
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errNoLease)
		return ended
	}
	l := handle.l
	l.mu.Lock()
	own := l.own
	l.mu.Unlock()
	if own != nil {
		return own.Context
	}
	derived := (&carriedLease{lease: &l.first}).derive(context.WithoutCancel(l.parent))
	l.mu.Lock()
	if l.own == nil {
		l.own = derived
	}
	own = l.own
	l.mu.Unlock()
	if own != derived { // another goroutine was first
		derived.end(l)
	}
	return own.Context
}

// A derivedContext is a context that ends with a lease.
type derivedContext struct {
	context.Context
	cancel         context.CancelCauseFunc
	previous, next *derivedContext // in derivedContexts
	listed         bool
}

// endWith makes the context end with a lease. If it must end at once, endWith returns
// the cause: the caller ends it, without a lock, because that calls methods of the user's
// context.
func (d *derivedContext) endWith(l *lease) (ended error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Reason().IsEnd() {
		return l.errLocked()
	}
	if resigned := l.readExtraLocked().resigned; resigned != nil {
		return resigned
	}
	l.contexts.add(d)
	return nil
}

// end ends the context, which no longer ends with the lease.
func (d *derivedContext) end(l *lease) {
	l.mu.Lock()
	l.contexts.remove(d)
	l.mu.Unlock()
	d.cancel(context.Canceled)
}

// keep lets the context outlive the release of a lease. It returns an error if the lease has ended or
// a nested call uses it.
func (d *derivedContext) keep(l *lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state.Reason().IsEnd():
		return l.errLocked()
	case l.handles > 1:
		return fmt.Errorf("%w: %q is used by a nested call", ErrReentrant, l.state.Name)
	}
	l.contexts.remove(d)
	return nil
}

// derivedContexts is the list of the contexts that end with a lease, which has a lock for
// it. To remove one takes constant time. An empty list is small, because most leases
// derive no context.
type derivedContexts struct {
	first *derivedContext
}

func (d *derivedContexts) add(derived *derivedContext) {
	derived.next, derived.listed = d.first, true
	if d.first != nil {
		d.first.previous = derived
	}
	d.first = derived
}

// remove removes a context, if it is in the list.
func (d *derivedContexts) remove(derived *derivedContext) {
	if !derived.listed {
		return
	}
	if derived.previous != nil {
		derived.previous.next = derived.next
	} else {
		d.first = derived.next
	}
	if derived.next != nil {
		derived.next.previous = derived.previous
	}
	derived.previous, derived.next, derived.listed = nil, nil, false
}

// removeAll removes all contexts and returns them.
func (d *derivedContexts) removeAll() (all []*derivedContext) {
	for d.first != nil {
		all = append(all, d.first)
		d.remove(d.first)
	}
	return all
}
