package dibs

import (
	"context"
	"fmt"
	"slices"
)

// Context returns a context that ends with the lease, with cause ErrLost after a loss. Calls under
// the lock should use it. It carries the values of Lock's context, but not its deadline or
// cancellation, which limit only the wait. WithLease returns a context that also ends with another
// context.
//
// For a Do's lease, Context returns the context of Do's function.
func (handle *Lease) Context() context.Context {
	switch {
	case handle.isZero():
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errNoLease)
		return ended
	case handle.work != nil:
		return handle.work.derived.Context
	}
	return handle.ownContext().derived.Context
}

// ownContext returns what Context returns. A nested call has another handle of the lease, and its
// context carries that.
func (handle *Lease) ownContext() *carriedLease {
	l := handle.l
	find := func(own []*carriedLease) *carriedLease {
		if i := slices.IndexFunc(own, func(c *carriedLease) bool { return c.lease == handle }); i >= 0 {
			return own[i]
		}
		return nil
	}
	l.mu.Lock()
	own := find(l.readExtraLocked().own)
	l.mu.Unlock()
	if own != nil {
		return own
	}
	carried := &carriedLease{lease: handle}
	derived := carried.derive(context.WithoutCancel(l.parent))
	l.mu.Lock()
	x := l.extraLocked()
	if own = find(x.own); own == nil {
		x.own = append(x.own, carried)
		own = carried
	}
	l.mu.Unlock()
	if own != carried { // another goroutine was first
		derived.end(l)
	}
	return own
}

// WithLease returns a context that carries the lease. Fence, LeaseOf, Client.Holds and the database
// stores' Guard find the lease in it. The context ends when ctx or the lease ends. Its cause is
// ErrLost if the lease was lost, or ctx's cause if ctx ended. The end of the context does not
// release the lease.
//
// If the lease is nil or ended, the context is already ended. A context for Do's lease stays valid
// after Lease.Yield, and then carries the new lease. The caller must call cancel after the work;
// otherwise the context stays in memory until the lease ends. cancel can be called repeatedly.
func WithLease(ctx context.Context, lease *Lease) (withLease context.Context, cancel context.CancelFunc) {
	if lease.isZero() {
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errNoLease)
		return ended, func() {}
	}
	carried := &carriedLease{lease: lease}
	if lease.work == nil {
		derived := carried.derive(ctx)
		return derived.Context, func() { derived.end(lease.l) }
	}
	derived := carried.deriveUnregistered(ctx)
	work := lease.work.derived.Context
	if work.Err() != nil {
		derived.cancel(context.Cause(work))
	}
	stop := context.AfterFunc(work, func() { derived.cancel(context.Cause(work)) })
	return derived.Context, func() { stop(); derived.cancel(context.Canceled) }
}

// LeaseOf returns the innermost lease on a name that ctx carries, even if it ended. ctx should be,
// or derive from, a context of Do, Lease.Context or WithLease. LeaseOf does no I/O. It returns
// ErrInvalid if ctx carries no lease on the name.
//
// If Do acquired the lease, only Do releases it: Unlock and Detach return ErrInvalid. The other
// methods, such as Extend, Yield and Wanted, can be called. After Yield, which releases and
// acquires the lock again, the *Lease refers to the new lease.
func LeaseOf(ctx context.Context, name string) (*Lease, error) {
	lease, fence := findCarried(ctx, name)
	switch {
	case lease != nil:
		return lease, nil
	case fence != nil:
		return nil, invalid("lease of %q: the context carries its fence only, of WithFence", name)
	}
	return nil, errNotCarried("lease", name)
}

// findCarried returns the innermost lease on a name that ctx carries, or its fence from WithFence.
// Both are nil if there is none.
func findCarried(ctx context.Context, name string) (lease *Lease, fence *carriedFence) {
	for carried, fence := range carriers(ctx) {
		switch {
		case carried == nil && fence.name == name:
			return nil, fence
		case carried != nil && carried.current().lease().countHeld(name) > 0:
			return carried.handleOf(), nil
		}
	}
	return nil, nil
}

func errNotCarried(what, name string) error {
	return invalid("%s of %q: the context carries no lease on it: pass on the context of the lease", what, name)
}

// A derivedContext is a context that ends with a lease.
type derivedContext struct {
	context.Context
	cancel         context.CancelCauseFunc
	previous, next *derivedContext // links in derivedContexts
	listed         bool
}

// endWith makes the context end with a lease. If the context must end at once, endWith returns the
// cause. The caller then ends it without holding a lock, because this calls methods on the user's
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

// end ends the context, and removes it from the lease.
func (d *derivedContext) end(l *lease) {
	l.mu.Lock()
	l.contexts.remove(d)
	l.mu.Unlock()
	d.cancel(context.Canceled)
}

// keep lets the context outlive the lease's release. It returns an error if the lease ended or a
// nested call uses it.
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

// derivedContexts lists the contexts that end with a lease, under the lease's lock. A removal takes
// constant time. An empty list is small, because most leases derive no context.
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
