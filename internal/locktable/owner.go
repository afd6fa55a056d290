package locktable

import "time"

// An OwnerState is what is known about an owner.
type OwnerState int

// The states of an owner.
const (
	Unknown OwnerState = iota // it ends by time
	Alive
	Dead
)

// CheckOwners ends the leases and queue entries of dead owners. A waiter of a live owner keeps
// its queue entry without heartbeats: see distrust for the exceptions. CheckOwners checks all
// holders, the waiters from the head of the queue to the first live one, and those without a
// recent heartbeat.
func (l *Lock) CheckOwners(stateOf func(owner string) OwnerState, now time.Duration) {
	for i, h := range l.Holders {
		if h.Owner != "" && stateOf(h.Owner) == Dead {
			if h.MinHoldUntil <= now {
				l.Holders[i].owner = Dead
			}
			l.Holders[i].Expires = min(h.Expires, max(now, h.MinHoldUntil))
		}
	}
	first := true
	for i, w := range l.Queue {
		if w.Owner != "" && (first || now-w.Heartbeat >= overdue) {
			l.Queue[i].owner = stateOf(w.Owner)
		}
		first = first && l.Queue[i].owner == Dead
	}
}

// distrust has the silent waiters of an owner judged by time, although it is alive, because a
// lease of it expired. An owner is a process: it may live longer than the call that waited. Such
// an entry gets the lock once, and blocks the others for one hand-off TTL, but the next ones of
// the same process do not.
//
// For the same reason an entry that may block others for longer is always judged by time. These are
// the entries of multi-locks, and all while the name has shared holders.
func (l *Lock) distrust(owner string, now time.Duration) {
	if owner == "" {
		return
	}
	for i := range l.Queue {
		if w := &l.Queue[i]; w.Owner == owner && w.owner == Alive && now-w.Heartbeat >= overdue {
			w.Owner, w.owner = "", Unknown
		}
	}
}
