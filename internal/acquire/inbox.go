package acquire

import (
	"sync"

	"github.com/dibslock/dibs/driver"
)

// An Inbox passes the store's events to the calls waiting for them, by token. It also records
// whether the store sends events. The zero Inbox is ready for use. It is safe for concurrent use.
type Inbox struct {
	mu      sync.Mutex
	flow    Flow
	waiters map[string]*waiter
	spare   *waiter // free list
}

// A waiter receives the events for a token.
type waiter struct {
	event chan driver.Event
	next  *waiter // another call with the same token
}

// Flow is whether the store delivers events.
type Flow uint8

// States of the flow.
const (
	Unsubscribed Flow = iota // the client is not connected before the first event
	Flowing
	Stopped
)

// add registers a waiter. A call does this before its first request, so that it misses no event for
// its token.
func (i *Inbox) add(token string) *waiter {
	i.mu.Lock()
	defer i.mu.Unlock()
	w := i.spare
	if w == nil {
		w = &waiter{event: make(chan driver.Event, 1)}
	} else {
		i.spare = w.next
	}
	if i.waiters == nil {
		i.waiters = make(map[string]*waiter)
	}
	w.next = i.waiters[token]
	i.waiters[token] = w
	return w
}

func (i *Inbox) remove(token string, w *waiter) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if first := i.waiters[token]; first != w {
		for first.next != w {
			first = first.next
		}
		first.next = w.next
	} else if w.next != nil {
		i.waiters[token] = w.next
	} else {
		delete(i.waiters, token)
	}
	select {
	case <-w.event: // arrived too late
	default:
	}
	i.spare, w.next = w, i.spare
}

// Calls returns how many calls are in progress. Calls with the same token count once.
func (i *Inbox) Calls() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.waiters)
}

// Deliver passes an event to the waiters for its token.
func (i *Inbox) Deliver(e driver.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for w := i.waiters[e.Token]; w != nil; w = w.next {
		w.putLocked(e)
	}
}

// RetryAll makes all waiters repeat their requests.
func (i *Inbox) RetryAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, first := range i.waiters {
		for w := first; w != nil; w = w.next {
			w.putLocked(driver.Event{Kind: driver.EventRetry})
		}
	}
}

// putLocked gives an event to a waiter. It replaces an undelivered event, but EventRetry does not
// replace EventGranted. The caller must hold the inbox's lock.
func (w *waiter) putLocked(e driver.Event) {
	select {
	case old := <-w.event:
		if old.Kind == driver.EventGranted && e.Kind != driver.EventGranted {
			e = old
		}
	default:
	}
	w.event <- e
}

// SetFlow records whether events flow, and returns the previous value. If the flow stopped or
// resumed, it first calls changed, in the order of the changes. The inbox's lock is held meanwhile,
// so changed should only queue its work.
func (i *Inbox) SetFlow(now Flow, changed func()) (before Flow) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before, i.flow = i.flow, now
	if now != before && (now == Stopped || before == Stopped) {
		changed()
	}
	return before
}

// Flow returns whether events flow.
func (i *Inbox) Flow() Flow {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.flow
}
