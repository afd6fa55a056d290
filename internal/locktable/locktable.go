// Package locktable is the state machine for stores whose server does not implement locking. It
// decides who holds a name, which waiter is served next, and with which fence. kvstore builds a
// store's verbs on it. memstore keeps a lock table in memory, localstore in a file.
//
// It uses no mutex, no clock and no I/O. The caller passes the time to each operation. The
// operation returns its reply and notifications, which the caller sends after storing the change.
// An operation reads only the locks for the names in its request, so a store does not need to load
// others.
package locktable

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/glob"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// A Table is the state of all names, or of the names in an operation. It is not safe for concurrent
// use.
type Table struct {
	Names       map[string]*Lock
	Fence       uint64        // fence high-water mark for all names
	Ticket      uint64        // largest ticket for all names
	Node        string        // incarnation, for a quorum
	RestartedAt time.Duration // when the store last lost its data, as Now.At
	Owner       string        // new leases in this operation end with this owner; or ""
}

// Now is an operation's time, on two clocks.
type Now struct {
	At   time.Duration // monotonic, with any origin: for expiry
	Wall time.Time     // for fences and tickets
}

// after returns the time after a duration, or the end of time if earlier. An overflowing TTL would
// lie in the past, and the lease would expire at once.
func (n Now) after(d time.Duration) time.Duration {
	if d > 0 && n.At > math.MaxInt64-d {
		return math.MaxInt64
	}
	return n.At + d
}

// A Notification is an event for a client.
type Notification struct {
	Client string
	Event  driver.Event
}

// New returns an empty lock table that never lost data.
func New() *Table {
	const ever = math.MinInt64 / 2 // differences must not overflow
	return &Table{Names: make(map[string]*Lock), RestartedAt: ever}
}

// Acquire processes a request that driver.CheckAcquire accepted. It returns an error only for a
// quorum's request: the node is recovering.
func (t *Table) Acquire(request driver.AcquireRequest, now Now) (reply driver.AcquireReply, notifications []Notification, err error) {
	wanted, notifications := t.wanted(request, now)
	if err = t.mayVote(wanted[0], request, now); err == nil {
		notifications = append(notifications, t.relinquish(wanted, request, now)...)
		var more []Notification
		reply, more = t.acquire(wanted, request, now)
		reply.Vote = t.voteReply(request.Vote)
		notifications = append(notifications, more...)
	}
	t.removeUnused(request.Names()...)
	return reply, notifications, err
}

// mayVote returns an error if a quorum's request must be refused because the table may have lost a
// lease. A token that holds the name keeps it.
func (t *Table) mayVote(lock *Lock, request driver.AcquireRequest, now Now) error {
	left := t.inRecoveryWindow(request.Vote, now)
	if left <= 0 || lock.holderIndex(request.Token) >= 0 {
		return nil
	}
	return &driver.UnavailableError{
		Op: "acquire", Name: request.Name, Refused: true, Cause: &driver.RecoveringError{Node: t.Node, Remaining: left},
	}
}

// voteReply returns the vote's part of the reply, and the event for its grant.
func (t *Table) voteReply(vote *driver.Vote) driver.VoteReply {
	if vote == nil {
		return driver.VoteReply{}
	}
	return driver.VoteReply{Node: t.Node}
}

// relinquish hands a request's lease to an older waiter, if its quorum asks for this.
func (t *Table) relinquish(wanted []*Lock, request driver.AcquireRequest, now Now) []Notification {
	if request.Vote == nil || !request.Vote.Relinquish || !request.Queue {
		return nil
	}
	lock := wanted[0]
	if lock.holderIndex(request.Token) < 0 || len(lock.Queue) == 0 || !lock.Queue[0].before(request.Vote.Ticket, request.Token) {
		return nil
	}
	lock.removeHolder(request.Token)
	_, _, notifications := t.queue(wanted, request, now)
	return append(notifications, t.serve(lock, now, true, request.Vote)...)
}

// wanted returns the locks for a request, without expired holders.
func (t *Table) wanted(r driver.AcquireRequest, now Now) (wanted []*Lock, notifications []Notification) {
	for _, name := range r.Names() {
		lock := t.lock(name)
		expired, retries := lock.expire(now.At)
		notifications = append(notifications, retries...)
		notifications = append(notifications, t.serve(lock, now, expired, nil)...)
		wanted = append(wanted, lock)
	}
	return wanted, notifications
}

// inRecoveryWindow returns how long the table must not grant anything to a quorum: it may
// have lost a lease.
func (t *Table) inRecoveryWindow(vote *driver.Vote, now Now) time.Duration {
	if vote == nil {
		return 0
	}
	return vote.RecoveryWindow - (now.At - t.RestartedAt)
}

// acquire processes a request after expired holders were removed and waiters were served. If a
// queue remains, its first waiter does not fit, or has to retry.
func (t *Table) acquire(wanted []*Lock, r driver.AcquireRequest, now Now) (reply driver.AcquireReply, notifications []Notification) {
	var busy driver.AcquireReply
	free := true
	for i, lock := range wanted {
		if lock.admits(r) {
			continue
		}
		name := r.Names()[i]
		var first Holder
		var left time.Duration
		if len(lock.Holders) > 0 {
			first = lock.firstToExpire()
			left = first.Expires - now.At
		} else {
			left = lock.Queue[0].dropAt() - now.At // it may be dead
		}
		if free || left < busy.Remaining {
			busy = driver.AcquireReply{Name: name, Holder: first.Token, Reserved: first.Reserved, Remaining: left}
		}
		free = false
	}
	if free {
		return t.grant(wanted, r, now), nil
	}
	notifications = t.releaseRest(wanted, r, now)
	if r.Queue {
		var more []Notification
		busy.Ticket, busy.Position, more = t.queue(wanted, r, now)
		notifications = append(notifications, more...)
	}
	busy.Fence = t.Fence // no earlier fence is larger: see ticketStep
	return busy, notifications
}

// releaseRest ends a multi-lock's remaining leases after the loss of a name: a waiter for several
// names holds none.
func (t *Table) releaseRest(wanted []*Lock, r driver.AcquireRequest, now Now) (notifications []Notification) {
	for _, lock := range wanted {
		if lock.removeHolder(r.Token) {
			notifications = append(notifications, t.serve(lock, now, true, r.Vote)...)
		}
	}
	return notifications
}

// grant makes a token a holder, or extends its lease.
func (t *Table) grant(wanted []*Lock, r driver.AcquireRequest, now Now) driver.AcquireReply {
	fence := t.nextFence(now, r.Vote)
	for _, lock := range wanted {
		lock.removeWaiter(r.Token)
		if i := lock.holderIndex(r.Token); i >= 0 {
			h := &lock.Holders[i]
			h.Expires, h.Fence = max(h.Expires, now.after(r.TTL)), fence
			h.keepOwnerOnlyIf(t.Owner)
			continue
		}
		h := lock.addHolder(r.Token, r.Client, r.Weight, r.Limit, fence, now.after(r.TTL))
		h.setOwner(t.Owner, now, r.MinHold)
	}
	return driver.AcquireReply{Held: true, Fence: fence}
}

// queue adds a request to each wait queue with the same ticket, or keeps its queue entries. Holders
// that asked about waiters are notified about a name's first waiter.
func (t *Table) queue(wanted []*Lock, r driver.AcquireRequest, now Now) (ticket uint64, position int, notifications []Notification) {
	for _, lock := range wanted {
		if i := lock.waiterIndex(r.Token); i >= 0 {
			ticket = lock.Queue[i].Ticket
		}
	}
	switch {
	case ticket != 0:
	case r.Vote != nil:
		ticket = r.Vote.Ticket
	default:
		ticket = t.newTicket(r.Ticket, now)
	}
	for _, lock := range wanted {
		i := lock.waiterIndex(r.Token)
		if i < 0 {
			i = lock.enqueue(r, ticket, now.At)
		}
		notifications = append(notifications, lock.notifyWanted()...)
		w := &lock.Queue[i]
		w.heard(now.At)
		w.Owner, w.MinHold = t.Owner, r.MinHold
		position = max(position, i+1)
	}
	return ticket, position, notifications
}

// Tickets are multiples of ticketStep. The numbers up to the next multiple belong to the same
// waiter, in case it loses its queue entry. It then gets its former place with another ticket, and
// a missed grant notification is not mistaken for a new one. If the reply with the next ticket is
// lost, the waiter gets this ticket twice; the fence in the reply then shows which grants are
// earlier. After the last number, the waiter joins at the end.
const ticketStep = 16

// newTicket returns the ticket for a waiter's new queue entry. The waiter's last ticket can be
// zero.
func (t *Table) newTicket(last uint64, now Now) uint64 {
	if last != 0 && (last+1)%ticketStep != 0 {
		return last + 1
	}
	t.Ticket = (max(t.Ticket, uint64(now.Wall.UnixMicro())) + ticketStep) / ticketStep * ticketStep
	return t.Ticket
}

// NotifyWanted registers a holder's client for a notification about the next waiter. If a request
// already waits, it returns true instead. A silent waiter counts only after its next heartbeat.
func (t *Table) NotifyWanted(r driver.WantedRequest, now Now) (wanted bool, notifications []Notification) {
	_, notifications = t.change(r.Name, now, nil, func(lock *Lock) bool {
		i := lock.holderIndex(r.Token)
		if i < 0 {
			return false
		}
		wanted = slices.ContainsFunc(lock.Queue, func(w Waiter) bool { return !w.silent(now.At) })
		lock.Holders[i].Wanted = !wanted
		lock.Holders[i].Client = cmp.Or(r.Client, lock.Holders[i].Client)
		return false
	})
	return wanted, notifications
}

// ReserveFences reserves fences for an exclusive lease. driver.CheckFences must have accepted the
// request.
func (t *Table) ReserveFences(r driver.FenceRequest, now Now) (reply driver.FenceReply, notifications []Notification) {
	_, notifications = t.change(r.Name, now, nil, func(lock *Lock) bool {
		i := lock.holderIndex(r.Token)
		if reply.Held = i >= 0 && lock.Holders[i].Exclusive; reply.Held {
			t.Fence = max(t.Fence+uint64(r.Count), r.Least)
			reply.Last = t.Fence
		}
		return false
	})
	return reply, notifications
}

// Resize changes a lease's weight. driver.CheckAcquire must have accepted the request.
func (t *Table) Resize(r driver.AcquireRequest, now Now) (reply driver.AcquireReply, notifications []Notification) {
	_, notifications = t.change(r.Name, now, r.Vote, func(lock *Lock) bool {
		i := lock.holderIndex(r.Token)
		var h Holder
		if i >= 0 {
			h = lock.Holders[i]
			lock.removeHolder(r.Token)
		}
		if i < 0 || !lock.fits(r.Weight, r.Limit) {
			reply.Name = r.Name
			if len(lock.Holders) > 0 {
				first := lock.firstToExpire()
				reply.Holder, reply.Reserved, reply.Remaining = first.Token, first.Reserved, first.Expires-now.At
			}
			if i >= 0 {
				lock.Holders = append(lock.Holders, h)
			}
			return false
		}
		reply = driver.AcquireReply{Held: true, Fence: t.nextFence(now, r.Vote)}
		resized := lock.addHolder(r.Token, r.Client, r.Weight, r.Limit, reply.Fence, max(h.Expires, now.after(r.TTL)))
		resized.Owner, resized.MinHoldUntil, resized.Wanted = h.Owner, h.MinHoldUntil, h.Wanted
		resized.keepOwnerOnlyIf(t.Owner)
		return true
	})
	return reply, notifications
}

// Revoke ends the lease with this fence, or with this token if the fence is zero.
func (t *Table) Revoke(r driver.RevokeRequest, now Now) (revoked bool, notifications []Notification) {
	var extra []Notification
	revoked, notifications = t.change(r.Name, now, nil, func(lock *Lock) bool {
		i := slices.IndexFunc(lock.Holders, func(h Holder) bool {
			return r.Fence != 0 && h.Fence == r.Fence || r.Fence == 0 && h.Token == r.Token
		})
		if i < 0 {
			return false
		}
		h := lock.Holders[i]
		if !h.Reserved {
			extra = append(extra, Notification{h.Client, driver.Event{Kind: driver.EventRevoked, Token: h.Token, Fence: h.Fence, Reason: r.Reason}})
		}
		return lock.removeAt(i)
	})
	return revoked, append(notifications, extra...)
}

// Cancel removes a request's token from holders and queues.
func (t *Table) Cancel(r driver.AcquireRequest, now Now) (notifications []Notification) {
	for _, name := range r.Names() {
		_, more := t.change(name, now, r.Vote, func(lock *Lock) bool {
			left, dropped := lock.removeWaiter(r.Token), lock.removeHolder(r.Token)
			return left || dropped
		})
		notifications = append(notifications, more...)
	}
	return notifications
}

// Release ends a lease, and returns false if there was none.
func (t *Table) Release(r driver.ReleaseRequest, now Now) (held bool, notifications []Notification) {
	var extra []Notification
	held, notifications = t.change(r.Name, now, r.Vote, func(lock *Lock) bool {
		if r.Unreserve {
			return lock.removeReserved(r.Token)
		}
		i := lock.holderIndex(r.Token)
		if r.Reserve <= 0 || i < 0 {
			return lock.removeHolder(r.Token)
		}
		lock.Holders[i].Reserved, lock.Holders[i].Wanted = true, false
		lock.Holders[i].Owner = ""
		lock.Holders[i].Expires = now.after(r.Reserve)
		if len(lock.Queue) > 0 { // the first waiter retries, to learn when the name is free
			extra = append(extra, retry(lock.Queue[0]))
		}
		return true
	})
	return held, append(notifications, extra...)
}

// change runs f, which may end a lease, and then serves the waiters that fit. vote is the request's
// vote, or nil.
func (t *Table) change(name string, now Now, vote *driver.Vote, f func(*Lock) bool) (changed bool, notifications []Notification) {
	lock := t.lock(name)
	expired, notifications := lock.expire(now.At)
	changed = f(lock)
	notifications = append(notifications, t.serve(lock, now, expired || changed, vote)...)
	t.removeUnused(name)
	return changed, notifications
}

// Extend raises each lease's remaining time to its TTL. An error is nil, or ErrLost if there is no
// such lease.
func (t *Table) Extend(requests []driver.ExtendRequest, now Now) []error {
	errs := make([]error, len(requests))
	for i, request := range requests {
		errs[i] = driver.ErrLost
		lock := t.Names[request.Name]
		if lock == nil {
			continue
		}
		if j := lock.holderIndex(request.Token); j >= 0 && !lock.Holders[j].expired(now.At) {
			h := &lock.Holders[j]
			h.Client = cmp.Or(request.Client, h.Client)
			h.Expires = max(h.Expires, now.after(request.TTL))
			h.keepOwnerOnlyIf(t.Owner)
			errs[i] = nil
		}
	}
	return errs
}

// Inspect returns a name's state.
func (t *Table) Inspect(name string, now Now) driver.State {
	const most = 100
	state := driver.State{Name: name, Fence: t.Fence}
	lock := t.Names[name]
	if lock == nil {
		return state
	}
	live := slices.DeleteFunc(slices.Clone(lock.Holders), func(h Holder) bool { return h.expired(now.At) })
	slices.SortStableFunc(live, func(a, b Holder) int { return cmp.Compare(a.Expires, b.Expires) })
	state.Holding = len(live)
	for _, h := range live[:min(most, len(live))] {
		weight := h.Weight
		if h.Exclusive {
			weight = 0
		}
		one := ownertoken.NewHolder(h.Token, weight)
		one.Fence, one.Remaining, one.Reserved = h.Fence, h.Expires-now.At, h.Reserved
		state.Holders = append(state.Holders, one)
	}
	for _, w := range lock.Queue {
		if w.silent(now.At) {
			continue
		}
		if state.Waiting++; state.Waiting <= most {
			one := ownertoken.NewWaiter(w.Token, w.Weight, w.Limit)
			one.Waited = max(0, now.At-w.Joined)
			state.Waiters = append(state.Waiters, one)
		}
	}
	return state
}

// Holds reports whether a token holds a name, with this fence unless it is zero.
func (t *Table) Holds(name, token string, fence uint64, now Now) bool {
	lock := t.Names[name]
	if lock == nil {
		return false
	}
	i := lock.holderIndex(token)
	if i < 0 {
		return false
	}
	h := lock.Holders[i]
	return !h.expired(now.At) && (fence == 0 || h.Fence == fence)
}

// InspectAll returns the names' states, in order.
func (t *Table) InspectAll(names []string, now Now) []driver.State {
	states := make([]driver.State, len(names))
	for i, name := range names {
		states[i] = t.Inspect(name, now)
	}
	return states
}

// List returns the held names matching a glob.
func (t *Table) List(pattern string, now Now) ([]string, error) {
	matching, err := glob.Parse(pattern)
	if err != nil {
		return nil, err
	}
	var names []string
	for name, lock := range t.Names {
		if matching.Matches(name) && slices.ContainsFunc(lock.Holders, func(h Holder) bool { return !h.expired(now.At) }) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Sweep checks a few names, so that names without live holders do not accumulate. It skips names
// with live waiters: their next requests do the check.
func (t *Table) Sweep(now Now) (notifications []Notification) {
	checks := 2
	for name, lock := range t.Names {
		if checks--; checks < 0 {
			break
		}
		if !slices.ContainsFunc(lock.Queue, func(w Waiter) bool { return !w.silent(now.At) }) {
			_, retries := lock.expire(now.At)
			notifications = append(notifications, retries...)
			t.removeUnused(name)
		}
	}
	return notifications
}

// Expire removes everything expired. It grants nothing: the next request for a name does. The
// notifications are for waiters with a missing heartbeat.
func (t *Table) Expire(now Now) (notifications []Notification) {
	for name, lock := range t.Names {
		_, retries := lock.expire(now.At)
		notifications = append(notifications, retries...)
		t.removeUnused(name)
	}
	return notifications
}

// lock returns a name's lock. It adds a new lock, which removeUnused may remove.
func (t *Table) lock(name string) *Lock {
	lock := t.Names[name]
	if lock == nil {
		lock = new(Lock)
		t.Names[name] = lock
	}
	return lock
}

// removeUnused removes locks without holders and waiters.
func (t *Table) removeUnused(names ...string) {
	for _, name := range names {
		if lock := t.Names[name]; lock != nil && len(lock.Holders) == 0 && len(lock.Queue) == 0 {
			delete(t.Names, name)
		}
	}
}

// serve grants the name to the waiters that fit, in order. vote belongs to the request that made
// room, or is nil. A waiter that does not fit blocks later waiters; otherwise they could overtake
// it for ever. A silent waiter also blocks them until it is dead, as does a waiter for several
// names; these are notified to retry after a change.
func (t *Table) serve(lock *Lock, now Now, changed bool, vote *driver.Vote) []Notification {
	var notifications []Notification
	for len(lock.Queue) > 0 && lock.fits(lock.Queue[0].Weight, lock.Queue[0].Limit) {
		w := lock.Queue[0]
		if t.inRecoveryWindow(w.Vote, now) > 0 {
			break
		}
		if w.MultiLock || w.silent(now.At) {
			if changed {
				notifications = append(notifications, retry(w))
			}
			break
		}
		lock.Queue = slices.Delete(lock.Queue, 0, 1)
		fence := t.nextFence(now, cmp.Or(vote, w.Vote))
		h := lock.addHolder(w.Token, w.Client, w.Weight, w.Limit, fence, now.after(w.TTL))
		h.setOwner(w.Owner, now, w.MinHold)
		granted := driver.Event{Kind: driver.EventGranted, Token: w.Token, Fence: fence, Ticket: w.Ticket, Vote: t.voteReply(w.Vote)}
		notifications = append(notifications, Notification{w.Client, granted})
		changed = true
	}
	return notifications
}

func retry(w Waiter) Notification {
	return Notification{w.Client, driver.Event{Kind: driver.EventRetry, Token: w.Token}}
}

// nextFence returns a new fence. It grows with the wall clock, and also if the clock does
// not advance. For a vote request the quorum's clock counts.
func (t *Table) nextFence(now Now, vote *driver.Vote) uint64 {
	at := uint64(now.Wall.UnixMicro())
	if vote != nil {
		at = vote.Fence
	}
	t.Fence = max(t.Fence+1, at)
	return t.Fence
}
