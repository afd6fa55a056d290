package acquire

import "time"

import "github.com/dibslock/dibs/driver"

// A pollInterval is how often a waiter repeats its request while the store cannot notify
// it. Waiters poll often while the queue moves, and every 100 ms while it does not. Each
// position further back adds 10 ms, early enough for a turn if each waiter ahead holds
// the lock for 10 ms. So one name costs its store about 20 requests a second for the
// first two waiters, and about 250 for the first hundred.
//
// Behind a client of another library only the first waiter polls, and as often as the store
// says.
type pollInterval struct {
	holder    string // of the last answer
	position  int
	remaining time.Duration
	every     time.Duration
}

const (
	pollSoon  = 10 * time.Millisecond  // at the front of a queue that moves
	pollEvery = 100 * time.Millisecond // at the front of a queue that does not move
)

// next returns the pause before the next request, after an answer that took this long. A
// store that answers slowly is not polled faster than it answers.
func (p *pollInterval) next(a driver.AcquireReply, took time.Duration) time.Duration {
	soon := pollSoon
	if a.Poll > 0 {
		soon = a.Poll
	}
	least := min(max(soon, took), pollEvery)
	// Libraries that always write the same value show a new holder by its TTL only.
	renewed := a.Poll > 0 && !a.NeverExpires() && a.Remaining > p.remaining-p.every+time.Millisecond
	if a.Holder != p.holder || a.Position != p.position || renewed {
		p.every = least
	} else {
		p.every = min(max(2*p.every, least), pollEvery)
	}
	p.holder, p.position, p.remaining = a.Holder, a.Position, a.Remaining
	return p.every + pollSoon*time.Duration(max(a.Position, 1)-1)
}
