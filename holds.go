package dibs

import (
	"context"
	"reflect"
)

// Holds returns nil if ctx carries a held lease on a name in the store of the Client: a context
// of Do or of Lease.Context, or one derived from it. An implementation can thus assert that it
// was called under its lock. The lease may be exclusive or shared, and any Client of the store
// may have acquired it.
//
// It returns ErrInvalid if ctx carries no such lease; a lease on the same name in another store
// does not count. If the lease has ended, it returns ErrLost or ErrReleased. Like Lease.Err it
// compares the clock, and does no I/O.
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
		if ended == nil { // of the innermost lease
			ended = err
		}
	}
	if ended == nil {
		return invalid("%q is not held in this context: acquire it, and pass on the context of the lease", name)
	}
	return ended
}

// sameStore reports whether two clients have one store.
func sameStore(a, b *Client) bool {
	return a == b || reflect.ValueOf(a.store.Store).Comparable() && reflect.ValueOf(b.store.Store).Comparable() && a.store.Store == b.store.Store
}
