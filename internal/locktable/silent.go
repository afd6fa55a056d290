package locktable

import (
	"time"

	"github.com/dibslock/dibs/driver"
)

// A waiter without heartbeats is dead, or the store stalled, or its clock was set. So silence is
// judged in two steps. The first operation that finds an overdue heartbeat records the time, and
// notifies the waiter to retry: the store answers by then. A live waiter has until missedTTL. It
// receives the notification, or repeats a failed request at least every second. So a stall of any
// length, or a clock step, costs no waiter its place.
//
// A dead waiter at the front blocks the queue until WaiterTTL after its last heartbeat if other
// requests arrive meanwhile, and otherwise for missedTTL.
const (
	overdue   = 2750 * time.Millisecond    // a client sends heartbeats every WaiterTTL/2
	missedTTL = driver.WaiterTTL - overdue // from the record to the end of the queue entry
)

// mostRetries is how many waiters are notified together. Those further back have until their turn.
const mostRetries = 64

// clockStep is by how much the clock may go back unnoticed.
const clockStep = time.Second

// recordMissed records an overdue heartbeat, and reports whether it did so now. If the clock went
// back, the waiter counts as heard now.
func (w *Waiter) recordMissed(now time.Duration) bool {
	if w.Heartbeat > now+clockStep {
		w.Heartbeat, w.Joined = now, min(w.Joined, now)
	}
	if w.Missed > now {
		w.Missed = 0
	}
	if w.Missed != 0 || now-w.Heartbeat < overdue {
		return false
	}
	w.Missed = now
	return true
}

// heard records a heartbeat. The clock may have gone back since the waiter joined.
func (w *Waiter) heard(now time.Duration) {
	w.Heartbeat, w.Missed, w.Joined = now, 0, min(w.Joined, now)
}

// dropAt returns when the queue entry ends without a further heartbeat. If no heartbeat is missing
// yet, it returns when it will be.
func (w Waiter) dropAt() time.Duration {
	if w.Missed == 0 {
		return w.Heartbeat + overdue
	}
	return max(w.Heartbeat+driver.WaiterTTL, w.Missed+missedTTL)
}

// dead reports whether the queue entry is over. A live owner keeps it, if trusted.
func (w Waiter) dead(now time.Duration, trusted bool) bool {
	if w.owner == Dead {
		return true
	}
	return w.Missed != 0 && now >= w.dropAt() && (!trusted || w.owner != Alive || w.MultiLock)
}

// silent reports whether the lock is not granted to the waiter before its next request. It
// blocks those behind it until it is dead.
func (w Waiter) silent(now time.Duration) bool {
	return w.owner == Dead || w.owner != Alive && now-w.Heartbeat >= driver.WaiterTTL
}
