package dibs

import (
	"sync"

	"github.com/dibslock/dibs/driver"
)

// An inbox passes the store's events to the calls that wait for them, by token, and
// records whether the store sends any. The zero inbox is ready for use. It is safe for
// concurrent use.
type inbox struct {
	mu      sync.Mutex
	flow    eventFlow
	waiters map[string]*waiter
	spare   *waiter // free list
}

// A waiter receives the events for one token.
type waiter struct {
	event chan driver.Event
	next  *waiter // another call with the same token
}

// eventFlow is whether the store delivers events.
type eventFlow uint8

const (
	eventsUnknown eventFlow = iota
	eventsFlowing
	eventsStopped
)

// add registers a waiter. A call does this before its first request, so that it misses
// no event for its token.
func (b *inbox) add(token string) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.spare
	if w == nil {
		w = &waiter{event: make(chan driver.Event, 1)}
	} else {
		b.spare = w.next
	}
	if b.waiters == nil {
		b.waiters = make(map[string]*waiter)
	}
	w.next = b.waiters[token]
	b.waiters[token] = w
	return w
}

func (b *inbox) remove(token string, w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first := b.waiters[token]; first != w {
		for first.next != w {
			first = first.next
		}
		first.next = w.next
	} else if w.next != nil {
		b.waiters[token] = w.next
	} else {
		delete(b.waiters, token)
	}
	select {
	case <-w.event: // arrived too late
	default:
	}
	b.spare, w.next = w, b.spare
}

// calls returns how many calls are in progress.
func (b *inbox) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiters)
}

// deliver passes an event to the waiters for its token.
func (b *inbox) deliver(e driver.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := b.waiters[e.Token]; w != nil; w = w.next {
		w.put(e)
	}
}

// retryAll makes all waiters repeat their requests.
func (b *inbox) retryAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, first := range b.waiters {
		for w := first; w != nil; w = w.next {
			w.put(driver.Event{Kind: driver.EventRetry})
		}
	}
}

// put gives an event to a waiter. It replaces an event that the waiter has not received,
// but EventRetry does not replace EventGranted. Its callers hold the lock of the inbox.
func (w *waiter) put(e driver.Event) {
	select {
	case old := <-w.event:
		if old.Kind == driver.EventGranted && e.Kind != driver.EventGranted {
			e = old
		}
	default:
	}
	w.event <- e
}

// setFlow records whether events flow, and returns what was recorded before. If events
// have stopped, or flow again, it first calls changed, in the order of these changes.
func (b *inbox) setFlow(now eventFlow, changed func()) (before eventFlow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.flow = b.flow, now
	if now != before && (now == eventsStopped || before == eventsStopped) {
		changed()
	}
	return before
}

func (b *inbox) currentFlow() eventFlow {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flow
}
