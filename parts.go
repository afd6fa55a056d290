package dibs

import "cmp"

// A multi-lock may be acquired in parts, each with a lease of its own: see acquisition.

// merge adds the names of another lease with the same token. It returns an error if that
// lease, or h, is lost already. The names belong to h even then, so that cancel releases
// all of them.
func (h *lease) merge(o *lease) error {
	o.mu.Lock()
	lost, other := o.err, o.leaseState
	o.ended = true // nothing changes o any more
	h.c.renewals.Remove(o)
	o.mu.Unlock()
	h.c.partlyLost.remove(o) // h releases its names
	ended := h.update(func(s *leaseState) {
		s.merge(&other)
	})
	return cmp.Or(ended, lost)
}

// beginWhole starts the lease as a whole: from now on the caller's settings apply.
func (h *lease) beginWhole(set *settings) error {
	now := h.c.clock.Now()
	return h.update(func(s *leaseState) {
		if s.ended {
			return
		}
		s.beginWhole(now, set.minHold, set.maxHold, set.noRenew)
		if h.hooks != nil {
			h.hooks.heldSince = now
		}
	})
}
