package dibs

import "time"

import "github.com/dibslock/dibs/driver"

// A pace is how often a waiter asks while the store cannot tell it of its grant. A
// queue that moves is asked often, and one that stands still every 100 ms; those further
// back ask less often, in time for their turn if each one ahead of them holds for 10 ms.
// So a name costs its store some 20 questions a second for the first two who wait, and
// some 250 for the first hundred.
type pollInterval struct {
	holder   string // what the last answer told
	position int
	every    time.Duration
}

const (
	pollSoon  = 10 * time.Millisecond  // between two questions at the front of a queue that moves,
	pollEvery = 100 * time.Millisecond // and of one that does not
)

// next is how long to wait before asking again after an answer that took a while to
// come. A store that answers slowly is not asked more often for that.
func (p *pollInterval) next(a driver.AcquireReply, took time.Duration) time.Duration {
	least := min(max(pollSoon, took), pollEvery)
	if a.Holder != p.holder || a.Position != p.position {
		p.every = least
	} else {
		p.every = min(max(2*p.every, least), pollEvery)
	}
	p.holder, p.position = a.Holder, a.Position
	return p.every + pollSoon*time.Duration(max(a.Position, 1)-1)
}
