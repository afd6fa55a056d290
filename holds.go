package dibs

import "context"

// Holds returns nil if ctx carries a held lease on a name: a context of Do or of
// Lease.Context, or one derived from it. An implementation can thus assert that it was
// called under its lock. The lease may be exclusive or shared.
//
// It returns ErrInvalid if ctx carries no lease on the name. If the lease has ended, it
// returns ErrLost or ErrReleased. Like Lease.Err it compares the clock, and does no I/O.
func Holds(ctx context.Context, name string) error {
	var ended error
	for in := carriedIn(ctx); in != nil; in = in.outer {
		lease := in.current()
		if !lease.h.holdsName(name) {
			continue
		}
		err := lease.Err()
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

func (h *lease) holdsName(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds(name)
}
