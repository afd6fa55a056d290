package acquire

import (
	"testing"

	"github.com/dibslock/dibs/driver"
)

// received returns the kind of the event waiting in w, or zero.
func received(w *waiter) driver.EventKind {
	select {
	case e := <-w.event:
		return e.Kind
	default:
		return 0
	}
}

func TestInboxDeliversByToken(t *testing.T) {
	var box Inbox
	one, two, other := box.add("a"), box.add("a"), box.add("b")
	box.Deliver(driver.Event{Kind: driver.EventGranted, Token: "a"})
	box.Deliver(driver.Event{Kind: driver.EventGranted, Token: "nobody"})
	if received(one) != driver.EventGranted || received(two) != driver.EventGranted || received(other) != 0 {
		t.Error("an event did not reach the waiters for its token, and them only")
	}
	box.RetryAll()
	for i, w := range []*waiter{one, two, other} {
		if received(w) != driver.EventRetry {
			t.Errorf("waiter %d has no EventRetry", i)
		}
	}
}

// A late waiter sees the newest event, but keeps a grant.
func TestInboxKeepsGrants(t *testing.T) {
	var box Inbox
	w := box.add("a")
	for _, kind := range []driver.EventKind{driver.EventRetry, driver.EventGranted, driver.EventRetry} {
		box.Deliver(driver.Event{Kind: kind, Token: "a"})
	}
	if got := received(w); got != driver.EventGranted {
		t.Errorf("event %v, want the grant", got)
	}
}

// Waiters can be removed in any order, and a reused waiter should have no old event.
func TestInboxRemove(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		var box Inbox
		var waiters []*waiter
		for range 3 {
			waiters = append(waiters, box.add("a"))
		}
		for n, i := range order {
			box.Deliver(driver.Event{Kind: driver.EventGranted, Token: "a"})
			box.remove("a", waiters[i])
			for _, left := range order[n+1:] {
				if received(waiters[left]) != driver.EventGranted {
					t.Errorf("order %v: waiter %d missed an event", order, left)
				}
			}
		}
		if len(box.waiters) != 0 {
			t.Errorf("order %v: %d tokens left", order, len(box.waiters))
		}
		if w := box.add("b"); w != waiters[order[2]] || received(w) != 0 {
			t.Errorf("order %v: the last waiter was not used again, or has an old event", order)
		}
	}
}

func TestInboxFlow(t *testing.T) {
	var box Inbox
	for _, step := range []struct {
		flow    Flow
		changed int
	}{{Flowing, 0}, {Flowing, 0}, {Stopped, 1}, {Stopped, 0}, {Flowing, 1}} {
		before, changed := box.Flow(), 0
		if got := box.SetFlow(step.flow, func() { changed++ }); got != before || box.Flow() != step.flow || changed != step.changed {
			t.Errorf("from %d to %d: returned %d, now %d, %d changes", before, step.flow, got, box.Flow(), changed)
		}
	}
}
