package dibs

import (
	"cmp"

	leasestate "github.com/dibslock/dibs/internal/lease"
)

// A multi-lock may be acquired in parts, each with a lease of its own: see acquisition.

// merge adds the names of another lease with the same token. It returns an error if that
// lease, or l, is lost already. The names belong to l even then, so that cancel releases
// all of them.
func (l *lease) merge(part *lease) error {
	s := part.LockState()
	lost, other := part.errLocked(), *s
	s.GiveAway()
	l.c.renewals.Remove(part)
	part.UnlockState()
	l.c.partlyLost.remove(part) // l releases its names
	ended := l.update(func(s *leasestate.State) { s.Merge(&other) })
	return cmp.Or(ended, lost)
}

// beginWhole starts a lease as a whole: from now on the caller's settings apply.
func beginWhole(l *lease, set *settings) error {
	now := l.c.clock.Now()
	return l.update(func(s *leasestate.State) {
		if s.Reason().IsEnd() {
			return
		}
		s.Times.BeginWhole(now, set.minHold, set.maxHold, set.noRenew)
		if l.hooks != nil {
			l.hooks.heldSince = now
		}
	})
}
