package acquire

import "time"

import "github.com/dibslock/dibs/driver"

// A pollInterval determines how often a waiter repeats its request while the store cannot notify
// it. Waiters poll often while the queue moves, and every 100 ms while it does not. Each position
// further back adds 10 ms. This is early enough if each waiter ahead holds the lock for 10 ms. So a
// name costs its store about 20 requests a second for the first two waiters, and about 250 for the
// first hundred.
//
// Behind another library's client only the first waiter polls, at the interval given by the store.
type pollInterval struct {
	holder    string // in the last answer
	position  int
	remaining time.Duration
	every     time.Duration
}

const (
	pollSoon  = 10 * time.Millisecond  // at the front of a moving queue
	pollEvery = 100 * time.Millisecond // at the front of a queue that does not move
)

// next returns the pause before the next request, given the duration of the last answer. A slow
// store is not polled faster than it answers.
func (p *pollInterval) next(a driver.AcquireReply, took time.Duration) time.Duration {
	soon := pollSoon
	if a.Poll > 0 {
		soon = a.Poll
	}
	least := min(max(soon, took), pollEvery)
	// If a library always writes the same value, only the TTL reveals a new holder.
	renewed := a.Poll > 0 && a.Remaining >= 0 && a.Remaining > p.remaining-p.every+time.Millisecond
	if a.Holder != p.holder || a.Position != p.position || renewed {
		p.every = least
	} else {
		p.every = min(max(2*p.every, least), pollEvery)
	}
	p.holder, p.position, p.remaining = a.Holder, a.Position, a.Remaining
	return p.every + pollSoon*time.Duration(max(a.Position, 1)-1)
}
