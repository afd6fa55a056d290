package locktable

import (
	"cmp"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Lock is a name's state. Its times are those in Now.At. The fields' JSON names are localstore's
// file format.
type Lock struct {
	Holders []Holder `json:"h,omitempty"`
	Queue   []Waiter `json:"q,omitempty"` // in the order of service
}

// A Holder is a lease on the name.
type Holder struct {
	Token     string        `json:"t"`
	Client    string        `json:"c"`
	Weight    int           `json:"w"`
	Exclusive bool          `json:"a,omitempty"`
	Fence     uint64        `json:"f"`
	Expires   time.Duration `json:"x"`
	Wanted    bool          `json:"n,omitempty"` // notify its client about the next waiter; only while there is no live waiter
	Reserved  bool          `json:"r,omitempty"` // released: the token does not hold any more, but the name stays unavailable

	Owner        string        `json:"o,omitempty"` // see Table.Owner
	MinHoldUntil time.Duration `json:"m,omitempty"` // the name stays unavailable until then, even if the owner is dead
	owner        OwnerState    // set by CheckOwners
}

// A Waiter is a queue entry.
type Waiter struct {
	Token     string        `json:"t"`
	Client    string        `json:"c"`
	Weight    int           `json:"w"`
	Limit     int           `json:"l"`
	TTL       time.Duration `json:"d"`           // for a hand-off
	MultiLock bool          `json:"s,omitempty"` // a request for several names: it must retry and gets no hand-off
	Ticket    uint64        `json:"n"`
	Joined    time.Duration `json:"j"`
	Heartbeat time.Duration `json:"x"`           // time of the last heartbeat
	Missed    time.Duration `json:"u,omitempty"` // when an operation first found the next heartbeat missing; or 0

	Owner   string        `json:"o,omitempty"`
	MinHold time.Duration `json:"m,omitempty"` // see driver.AcquireRequest
	owner   OwnerState    // set by CheckOwners

	Vote *driver.Vote `json:"-"` // for a quorum node
}

// Expires returns when all holders and waiters have expired unless they are renewed. The
// lock can be examined again, and perhaps deleted, then.
func (l *Lock) Expires(now time.Duration) (end time.Duration) {
	for _, h := range l.Holders {
		end = max(end, h.Expires)
	}
	for _, w := range l.Queue {
		d := w.dropAt()
		if d <= now { // its owner is alive
			d = now + missedTTL
		}
		end = max(end, d)
	}
	return end
}

// expire removes expired holders and dead waiters, and reports whether there were any. It records
// whose heartbeat is missing.
func (l *Lock) expire(now time.Duration) (changed bool, notifications []Notification) {
	before := len(l.Holders) + len(l.Queue)
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool {
		if h.expired(now) {
			l.distrust(h.Owner, now)
			return true
		}
		return false
	})
	for i := range l.Queue {
		if l.Queue[i].recordMissed(now) && len(notifications) < mostRetries {
			notifications = append(notifications, retry(l.Queue[i]))
		}
	}
	shared := slices.ContainsFunc(l.Holders, func(h Holder) bool { return !h.Exclusive })
	l.Queue = slices.DeleteFunc(l.Queue, func(w Waiter) bool { return w.dead(now, !shared) })
	return len(l.Holders)+len(l.Queue) < before, notifications
}

func (h Holder) expired(now time.Duration) bool { return h.owner == Dead || now >= h.Expires }

// before reports whether the waiter is served before another. With a quorum's tickets, the order is
// the same in each store.
func (w Waiter) before(ticket uint64, token string) bool {
	return w.Ticket < ticket || w.Ticket == ticket && w.Token < token
}

// admits reports whether a request can be granted now, or holds the name already.
func (l *Lock) admits(r driver.AcquireRequest) bool {
	if l.holderIndex(r.Token) >= 0 {
		return true
	}
	return l.fits(r.Weight, r.Limit) && (len(l.Queue) == 0 || l.Queue[0].Token == r.Token)
}

func (l *Lock) fits(weight, limit int) bool {
	used := 0
	for _, h := range l.Holders {
		if h.Exclusive {
			return false
		}
		used += h.Weight
	}
	return used <= limit-weight
}

// setOwner sets a new lease's owner.
func (h *Holder) setOwner(owner string, now Now, minHold time.Duration) {
	h.Owner = owner
	if owner != "" && minHold > 0 {
		h.MinHoldUntil = now.after(minHold)
	}
}

// keepOwnerOnlyIf removes a lease's owner if another owner also uses the lease. A lease ends with
// its owner only while that owner is its only user.
func (h *Holder) keepOwnerOnlyIf(owner string) {
	if h.Owner != owner {
		h.Owner = ""
	}
}

func (l *Lock) addHolder(token, client string, weight, limit int, fence uint64, expires time.Duration) *Holder {
	l.Holders = append(l.Holders, Holder{Token: token, Client: client, Weight: weight, Exclusive: weight == limit, Fence: fence, Expires: expires})
	return &l.Holders[len(l.Holders)-1]
}

// enqueue adds a queue entry for a request, and returns its index.
func (l *Lock) enqueue(r driver.AcquireRequest, ticket uint64, now time.Duration) int {
	i, _ := slices.BinarySearchFunc(l.Queue, true, func(w Waiter, _ bool) int {
		if w.before(ticket, r.Token) {
			return -1
		}
		return 1
	})
	l.Queue = slices.Insert(l.Queue, i, Waiter{
		Token: r.Token, Client: r.Client, Weight: r.Weight, Limit: r.Limit, TTL: r.HandoffTTL(),
		MultiLock: len(r.With) > 0, Ticket: ticket, Joined: now, Vote: r.Vote,
	})
	return i
}

// notifyWanted returns the notifications for holders that asked about waiters.
func (l *Lock) notifyWanted() (notifications []Notification) {
	for i := range l.Holders {
		h := &l.Holders[i]
		if h.Wanted {
			h.Wanted = false
			notifications = append(notifications, Notification{h.Client, driver.Event{Kind: driver.EventWanted, Token: h.Token}})
		}
	}
	return notifications
}

func (l *Lock) holderIndex(token string) int {
	return slices.IndexFunc(l.Holders, func(h Holder) bool { return h.Token == token && !h.Reserved })
}

func (l *Lock) waiterIndex(token string) int {
	return slices.IndexFunc(l.Queue, func(w Waiter) bool { return w.Token == token })
}

// firstToExpire returns the holder that expires first.
func (l *Lock) firstToExpire() Holder {
	return slices.MinFunc(l.Holders, func(a, b Holder) int { return cmp.Compare(a.Expires, b.Expires) })
}

func (l *Lock) removeWaiter(token string) bool {
	i := l.waiterIndex(token)
	if i < 0 {
		return false
	}
	l.Queue = slices.Delete(l.Queue, i, i+1)
	return true
}

func (l *Lock) removeHolder(token string) bool {
	return l.removeAt(l.holderIndex(token))
}

// removeReserved removes the token's reservation.
func (l *Lock) removeReserved(token string) bool {
	return l.removeAt(slices.IndexFunc(l.Holders, func(h Holder) bool { return h.Token == token && h.Reserved }))
}

// removeAt removes the holder at an index, and returns false if the index is negative.
func (l *Lock) removeAt(i int) bool {
	if i < 0 {
		return false
	}
	l.Holders = slices.Delete(l.Holders, i, i+1)
	return true
}

// Owners returns the owners on which a waiting token depends: the holders' owners and the previous
// waiter's owner.
func (l *Lock) Owners(token string) (owners []string) {
	for _, h := range l.Holders {
		if h.Owner != "" {
			owners = append(owners, h.Owner)
		}
	}
	if i := l.waiterIndex(token); i > 0 && l.Queue[i-1].Owner != "" {
		owners = append(owners, l.Queue[i-1].Owner)
	}
	return owners
}
