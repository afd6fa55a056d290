package locktable

import (
	"cmp"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An Entry is what is known of one name. Its times are those of Now.At. The names of
// the fields in JSON are the format of localstore's files.
type Lock struct {
	Holders []Holder `json:"h,omitempty"`
	Queue   []Waiter `json:"q,omitempty"` // in the order of service
}

// A Holder holds the name, or a part of it.
type Holder struct {
	Token     string        `json:"t"`
	Client    string        `json:"c"`
	Weight    int           `json:"w"`
	Exclusive bool          `json:"a,omitempty"`
	Fence     uint64        `json:"f"`
	Expires   time.Duration `json:"x"`

	Owner        string        `json:"o,omitempty"` // see Ledger
	MinHoldUntil time.Duration `json:"m,omitempty"` // until when it is held though its owner is dead
	ownerDead    bool          // its owner is
}

// A Place is a claim that waits.
type Waiter struct {
	Token     string        `json:"t"`
	Client    string        `json:"c"`
	Weight    int           `json:"w"`
	Limit     int           `json:"l"`
	TTL       time.Duration `json:"d"`           // of a hand-off
	MultiLock bool          `json:"s,omitempty"` // it wants other names too, and has to ask
	Ticket    uint64        `json:"n"`
	Joined    time.Duration `json:"j"`
	Heartbeat time.Duration `json:"x"` // its last heartbeat

	Owner     string        `json:"o,omitempty"`
	MinHold   time.Duration `json:"m,omitempty"` // see dibs.Claim
	ownerDead bool

	Vote *driver.VoteRequest `json:"-"` // nodes of a quorum only
}

// Ends is when all that the entry says is over, unless somebody acts on it: it can be
// deleted then.
func (e *Lock) Expires() (end time.Duration) {
	for _, h := range e.Holders {
		end = max(end, h.Expires)
	}
	for _, p := range e.Queue {
		end = max(end, p.Heartbeat+driver.WaiterTTL)
	}
	return end
}

// expire drops the holders whose time is over, and the waiters that gave no sign
// of life for too long. It reports whether there were any.
func (e *Lock) expire(now time.Duration) bool {
	before := len(e.Holders) + len(e.Queue)
	e.Holders = slices.DeleteFunc(e.Holders, func(h Holder) bool { return h.expired(now) })
	e.Queue = slices.DeleteFunc(e.Queue, func(p Waiter) bool { return p.expired(now) })
	return len(e.Holders)+len(e.Queue) < before
}

func (h Holder) expired(now time.Duration) bool { return h.ownerDead || now >= h.Expires }

func (p Waiter) expired(now time.Duration) bool {
	return p.ownerDead || now-p.Heartbeat >= driver.WaiterTTL
}

// before reports whether a place comes before another one: in each store the same, if
// they have their tickets from a quorum.
func (p Waiter) before(ticket uint64, token string) bool {
	return p.Ticket < ticket || p.Ticket == ticket && p.Token < token
}

// open reports whether a claim may have the name now, or has it.
func (e *Lock) admits(c driver.AcquireRequest) bool {
	if e.holderIndex(c.Token) >= 0 {
		return true
	}
	return e.fits(c.Weight, c.Limit) && (len(e.Queue) == 0 || e.Queue[0].Token == c.Token)
}

func (e *Lock) fits(weight, limit int) bool {
	used := 0
	for _, h := range e.Holders {
		if h.Exclusive {
			return false
		}
		used += h.Weight
	}
	return used <= limit-weight
}

// Bury ends what belongs to owners that are dead: they neither hold nor wait any more. It
// looks at all that hold, and from the head of the queue on at those who are dead.
func (e *Lock) RemoveDead(dead func(owner string) bool, now time.Duration) {
	for i, h := range e.Holders {
		if h.Owner != "" && dead(h.Owner) {
			e.Holders[i].ownerDead = h.MinHoldUntil <= now
			e.Holders[i].Expires = min(h.Expires, max(now, h.MinHoldUntil))
		}
	}
	for i, p := range e.Queue {
		if p.Owner == "" || !dead(p.Owner) {
			break
		}
		e.Queue[i].ownerDead = true
	}
}

// belong notes for whom a holding is.
func (h *Holder) setOwner(owner string, now, keep time.Duration) {
	h.Owner = owner
	if owner != "" && keep > 0 {
		h.MinHoldUntil = now + keep
	}
}

// share notes who works with a holding: it ends with its owner only while that is the only one.
func (h *Holder) keepOwnerOnlyIf(owner string) {
	if h.Owner != owner {
		h.Owner = ""
	}
}

func (e *Lock) addHolder(token, client string, weight, limit int, fence uint64, expires time.Duration) *Holder {
	e.Holders = append(e.Holders, Holder{Token: token, Client: client, Weight: weight, Exclusive: weight == limit, Fence: fence, Expires: expires})
	return &e.Holders[len(e.Holders)-1]
}

// join gives a claim its place, and returns its index.
func (e *Lock) enqueue(c driver.AcquireRequest, ticket uint64, now time.Duration) int {
	i, _ := slices.BinarySearchFunc(e.Queue, true, func(p Waiter, _ bool) int {
		if p.before(ticket, c.Token) {
			return -1
		}
		return 1
	})
	e.Queue = slices.Insert(e.Queue, i, Waiter{
		Token: c.Token, Client: c.Client, Weight: c.Weight, Limit: c.Limit, TTL: c.HandoffTTL(),
		MultiLock: len(c.With) > 0, Ticket: ticket, Joined: now, Vote: c.Vote,
	})
	return i
}

func (e *Lock) holderIndex(token string) int {
	return slices.IndexFunc(e.Holders, func(h Holder) bool { return h.Token == token })
}

func (e *Lock) waiterIndex(token string) int {
	return slices.IndexFunc(e.Queue, func(p Waiter) bool { return p.Token == token })
}

// first returns the holder that expires first.
func (e *Lock) firstToExpire() Holder {
	return slices.MinFunc(e.Holders, func(a, b Holder) int { return cmp.Compare(a.Expires, b.Expires) })
}

func (e *Lock) removeWaiter(token string) bool {
	i := e.waiterIndex(token)
	if i < 0 {
		return false
	}
	e.Queue = slices.Delete(e.Queue, i, i+1)
	return true
}

func (e *Lock) removeHolder(token string) bool {
	i := e.holderIndex(token)
	if i < 0 {
		return false
	}
	e.Holders = slices.Delete(e.Holders, i, i+1)
	return true
}

// Owners returns the owners of what a waiting token waits for: of those who hold, and of the
// one before it in the queue.
func (e *Lock) Owners(token string) (owners []string) {
	for _, h := range e.Holders {
		if h.Owner != "" {
			owners = append(owners, h.Owner)
		}
	}
	if i := e.waiterIndex(token); i > 0 && e.Queue[i-1].Owner != "" {
		owners = append(owners, e.Queue[i-1].Owner)
	}
	return owners
}
