package locktable

import "time"

// An OwnerState says whether an owner is alive.
type OwnerState int

// States of an owner.
const (
	Unknown OwnerState = iota // it ends by time
	Alive
	Dead
)

// CheckOwners ends dead owners' leases and queue entries. A live owner's waiter keeps its queue
// entry without heartbeats: see distrust for the exceptions. CheckOwners checks all holders, the
// waiters from the front of the queue to the first live waiter, and waiters without a recent
// heartbeat.
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

// distrust makes an owner's silent waiters depend on time, although the owner is alive, because the
// owner let a lease expire. An owner is a process: it may outlive the call that waited. Such an
// entry gets the lock once, and blocks the others for a hand-off TTL, but the process's next
// entries do not.
//
// For the same reason, entries that can block others for longer always depend on time: multi-locks'
// entries, and all entries while the name has shared holders.
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
