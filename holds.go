package dibs

import (
	"context"
	"reflect"
)

// Holds returns nil if ctx carries a held lease on a name in the Client's store. Code can thus
// assert that it runs under its lock. The lease can be exclusive or shared, and acquired by any
// Client of the store. ctx should be, or derive from, a context of Do, Lease.Context or WithLease.
//
// Holds returns ErrInvalid if ctx carries no such lease. If the lease ended, it returns ErrLost or
// ErrReleased. Holds does no I/O: like Lease.Err, it compares the clock with the lease's deadline.
func (c *Client) Holds(ctx context.Context, name string) error {
	if err := c.check(); err != nil {
		return err
	}
	var ended error
	for carried := carriedIn(ctx); carried != nil; carried = carried.outer {
		handle := carried.current()
		if handle.lease().countHeld(name) == 0 || !sameStore(c, handle.lease().c) {
			continue
		}
		err := handle.Err()
		if err == nil {
			return nil
		}
		if ended == nil { // the innermost lease's error
			ended = err
		}
	}
	if ended == nil {
		return invalid("%q is not held in this context: acquire it, and pass on the context of the lease", name)
	}
	return ended
}

// sameStore reports whether both clients use the same store.
func sameStore(a, b *Client) bool {
	return a == b || reflect.ValueOf(a.store.Store).Comparable() && reflect.ValueOf(b.store.Store).Comparable() && a.store.Store == b.store.Store
}
