// Package locktable is what a store on one machine knows of claims, and what becomes of
// them: who holds a name, who waits for it, who is served next, with which fence. It
// is the one home of these rules; memstore keeps a lock table in memory, localstore one in
// a file.
//
// It has no mutex, no clock and no I/O. An operation is told the time, and returns its
// answer and the messages that are to be sent once the change is kept. It looks at the
// entries of the names that it is given, and at no others, so that whoever keeps the
// entries elsewhere need not load more.
package locktable

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Ledger is the state of all names, or of those that are concerned. It is not safe
// for concurrent use.
type Table struct {
	Names       map[string]*Lock
	Fence       uint64        // the largest so far, of all names
	Ticket      uint64        // the largest so far
	Node        string        // which store it is, to a quorum
	RestartedAt time.Duration // when it last forgot everything, as Now.At
	Owner       string        // for whom this operation is, if what it takes is to end with it; or ""
}

// Now is the time of one operation, by two clocks.
type Now struct {
	At   time.Duration // by which leases end: nobody steps it, and it begins anywhere
	Wall time.Time     // by which fences and tickets grow
}

// A Message is an event for a client.
type Notification struct {
	Client string
	Event  driver.Event
}

// New returns an empty lock table that has never forgotten anything.
func New() *Table {
	const ever = math.MinInt64 / 2 // so that no difference overflows
	return &Table{Names: make(map[string]*Lock), RestartedAt: ever}
}

// Acquire answers a claim that Check has passed.
func (l *Table) Acquire(c driver.AcquireRequest, now Now) (answer driver.AcquireReply, mail []Notification, err error) {
	var wanted []*Lock
	for _, name := range Names(c) {
		e := l.lock(name)
		mail = append(mail, l.serve(e, now, e.expire(now.At), nil)...)
		wanted = append(wanted, e)
	}
	answer, more, err := l.vote(wanted, c, now)
	l.removeUnused(Names(c)...)
	return answer, append(mail, more...), err
}

// vote answers a claim, and first a ballot that is with it.
func (l *Table) vote(wanted []*Lock, c driver.AcquireRequest, now Now) (answer driver.AcquireReply, mail []Notification, err error) {
	if c.Vote == nil {
		answer, mail = l.acquire(wanted, c, now)
		return answer, mail, nil
	}
	for _, e := range wanted {
		held := e.holderIndex(c.Token) >= 0
		if left := l.inRecoveryWindow(c.Vote, now); left > 0 && !held {
			return answer, nil, &driver.UnavailableError{
				Op: "acquire", Name: c.Name, Refused: true, Cause: &driver.RecoveringError{Node: l.Node, Remaining: left},
			}
		}
		if c.Vote.Relinquish && held && c.Queue && len(e.Queue) > 0 && e.Queue[0].before(c.Vote.Ticket, c.Token) {
			e.removeHolder(c.Token)
			l.queue([]*Lock{e}, c, now)
			mail = append(mail, l.serve(e, now, true, c.Vote)...)
		}
	}
	answer, more := l.acquire(wanted, c, now)
	answer.Node = l.Node
	if !answer.Held {
		answer.Fence = l.Fence
	}
	return answer, append(mail, more...), nil
}

// forgetful is how long nothing must be granted to a ballot yet: a lease may have been
// forgotten.
func (l *Table) inRecoveryWindow(b *driver.VoteRequest, now Now) time.Duration {
	if b == nil {
		return 0
	}
	return b.RecoveryWindow - (now.At - l.RestartedAt)
}

// acquire answers a claim once expired holders and served waiters are out of the
// way: if there is a queue now, its head does not fit yet, or has to ask.
func (l *Table) acquire(wanted []*Lock, c driver.AcquireRequest, now Now) (answer driver.AcquireReply, mail []Notification) {
	var busy driver.AcquireReply
	free := true
	for i, e := range wanted {
		if e.admits(c) {
			continue
		}
		name, left := Names(c)[i], driver.WaiterTTL // a head that died may block it for so long
		holder := ""
		if len(e.Holders) > 0 {
			first := e.firstToExpire()
			holder, left = first.Token, first.Expires-now.At
		}
		if free || left < busy.Remaining {
			busy = driver.AcquireReply{Name: name, Holder: holder, Remaining: left}
		}
		free = false
	}
	if free {
		return l.grant(wanted, c, now), nil
	}
	mail = l.releaseRest(wanted, c, now)
	if c.Queue {
		busy.Ticket, busy.Position = l.queue(wanted, c, now)
	}
	return busy, mail
}

// dropRest ends what a claim on several names still holds, if it has lost one of them: a
// waiter for several names holds none.
func (l *Table) releaseRest(wanted []*Lock, c driver.AcquireRequest, now Now) (mail []Notification) {
	for _, e := range wanted {
		if e.removeHolder(c.Token) {
			mail = append(mail, l.serve(e, now, true, c.Vote)...)
		}
	}
	return mail
}

// take makes a token the holder, or makes it hold longer.
func (l *Table) grant(wanted []*Lock, c driver.AcquireRequest, now Now) driver.AcquireReply {
	fence := l.nextFence(now, c.Vote)
	for _, e := range wanted {
		e.removeWaiter(c.Token)
		if i := e.holderIndex(c.Token); i >= 0 {
			h := &e.Holders[i]
			h.Expires, h.Fence = max(h.Expires, now.At+c.TTL), fence
			h.keepOwnerOnlyIf(l.Owner)
			continue
		}
		h := e.addHolder(c.Token, c.Client, c.Weight, c.Limit, fence, now.At+c.TTL)
		h.setOwner(l.Owner, now.At, c.MinHold)
	}
	return driver.AcquireReply{Held: true, Fence: fence}
}

// queue gives a claim its place in each queue, the same in all, or keeps it.
func (l *Table) queue(wanted []*Lock, c driver.AcquireRequest, now Now) (ticket uint64, position int) {
	for _, e := range wanted {
		if i := e.waiterIndex(c.Token); i >= 0 {
			ticket = e.Queue[i].Ticket
		}
	}
	switch {
	case ticket != 0:
	case c.Vote != nil:
		ticket = c.Vote.Ticket
	default:
		l.Ticket = max(l.Ticket+1, uint64(now.Wall.UnixMicro()))
		ticket = l.Ticket
	}
	for _, e := range wanted {
		i := e.waiterIndex(c.Token)
		if i < 0 {
			i = e.enqueue(c, ticket, now.At)
		}
		e.Queue[i].Heartbeat, e.Queue[i].Owner, e.Queue[i].MinHold = now.At, l.Owner, c.MinHold
		position = max(position, i+1)
	}
	return ticket, position
}

// Reweigh changes how much a token holds; of a claim that Check has passed.
func (l *Table) Resize(c driver.AcquireRequest, now Now) (answer driver.AcquireReply, mail []Notification) {
	_, mail = l.change(c.Name, now, c.Vote, func(e *Lock) bool {
		i := e.holderIndex(c.Token)
		var h Holder
		if i >= 0 {
			h = e.Holders[i]
			e.removeHolder(c.Token)
		}
		if i < 0 || !e.fits(c.Weight, c.Limit) {
			answer.Name = c.Name
			if len(e.Holders) > 0 {
				answer.Holder, answer.Remaining = e.firstToExpire().Token, e.firstToExpire().Expires-now.At
			}
			if i >= 0 {
				e.Holders = append(e.Holders, h)
			}
			return false
		}
		answer = driver.AcquireReply{Held: true, Fence: l.nextFence(now, c.Vote)}
		again := e.addHolder(c.Token, c.Client, c.Weight, c.Limit, answer.Fence, max(h.Expires, now.At+c.TTL))
		again.Owner, again.MinHoldUntil = h.Owner, h.MinHoldUntil
		again.keepOwnerOnlyIf(l.Owner)
		return true
	})
	return answer, mail
}

// Break ends the holding that has this fence.
func (l *Table) Revoke(name string, fence uint64, now Now) (broken bool, mail []Notification) {
	var told []Notification
	broken, mail = l.change(name, now, nil, func(e *Lock) bool {
		i := slices.IndexFunc(e.Holders, func(h Holder) bool { return fence != 0 && h.Fence == fence })
		if i < 0 {
			return false
		}
		h := e.Holders[i]
		told = append(told, Notification{h.Client, driver.Event{Kind: driver.EventRevoked, Token: h.Token, Fence: fence}})
		return e.removeHolder(h.Token)
	})
	return broken, append(mail, told...)
}

// Abandon takes the claim's token out of holders and queues.
func (l *Table) Cancel(c driver.AcquireRequest, now Now) (mail []Notification) {
	for _, name := range Names(c) {
		_, more := l.change(name, now, c.Vote, func(e *Lock) bool {
			left, dropped := e.removeWaiter(c.Token), e.removeHolder(c.Token)
			return left || dropped
		})
		mail = append(mail, more...)
	}
	return mail
}

// Release ends a holding, and reports false if there was none.
func (l *Table) Release(r driver.ReleaseRequest, now Now) (held bool, mail []Notification) {
	var told []Notification
	held, mail = l.change(r.Name, now, r.Vote, func(e *Lock) bool {
		i := e.holderIndex(r.Token)
		if r.Reserve <= 0 || i < 0 {
			return e.removeHolder(r.Token)
		}
		e.Holders[i].Token += driver.ReservedSuffix
		e.Holders[i].Owner = ""
		e.Holders[i].Expires = now.At + r.Reserve
		if len(e.Queue) > 0 { // the first asks, to learn when the name is free
			told = append(told, retry(e.Queue[0]))
		}
		return true
	})
	return held, append(mail, told...)
}

// change runs f, which may end something, and serves who fits then.
func (l *Table) change(name string, now Now, b *driver.VoteRequest, f func(*Lock) bool) (changed bool, mail []Notification) {
	e := l.lock(name)
	expired := e.expire(now.At)
	changed = f(e)
	mail = l.serve(e, now, expired || changed, b)
	l.removeUnused(name)
	return changed, mail
}

// Extend lifts the life of each hold to its TTL: nil, or ErrLost if there is no such
// holding.
func (l *Table) Extend(holds []driver.ExtendRequest, now Now) []error {
	errs := make([]error, len(holds))
	for i, hold := range holds {
		errs[i] = driver.ErrLost
		e := l.Names[hold.Name]
		if e == nil {
			continue
		}
		if j := e.holderIndex(hold.Token); j >= 0 && !e.Holders[j].expired(now.At) {
			h := &e.Holders[j]
			h.Client = cmp.Or(hold.Client, h.Client)
			h.Expires = max(h.Expires, now.At+hold.TTL)
			h.keepOwnerOnlyIf(l.Owner)
			errs[i] = nil
		}
	}
	return errs
}

// Inspect returns the state of a name.
func (l *Table) Inspect(name string, now Now) driver.State {
	const most = 100
	state := driver.State{Name: name, Fence: l.Fence}
	e := l.Names[name]
	if e == nil {
		return state
	}
	live := slices.DeleteFunc(slices.Clone(e.Holders), func(h Holder) bool { return h.expired(now.At) })
	slices.SortStableFunc(live, func(a, b Holder) int { return cmp.Compare(a.Expires, b.Expires) })
	state.Holding = len(live)
	for _, h := range live[:min(most, len(live))] {
		weight := h.Weight
		if h.Exclusive {
			weight = 0
		}
		state.Holders = append(state.Holders, driver.Holder{
			Token: h.Token, Label: driver.LabelOf(h.Token), Weight: weight, Fence: h.Fence, Remaining: h.Expires - now.At,
		})
	}
	for _, p := range e.Queue {
		if p.expired(now.At) {
			continue
		}
		if state.Waiting++; state.Waiting <= most {
			state.Waiters = append(state.Waiters, driver.Waiter{
				Token: p.Token, Label: driver.LabelOf(p.Token), Waited: now.At - p.Joined,
			})
		}
	}
	return state
}

// List returns the names that match a glob and are held.
func (l *Table) List(pattern string, now Now) ([]string, error) {
	// A slash is no separator in names.
	flat := strings.NewReplacer("/", "\x00")
	pattern = flat.Replace(pattern)
	var names []string
	for name, e := range l.Names {
		matches, err := path.Match(pattern, flat.Replace(name))
		if err != nil {
			return nil, fmt.Errorf("%w: pattern %q: %w", driver.ErrInvalid, pattern, err)
		}
		if matches && slices.ContainsFunc(e.Holders, func(h Holder) bool { return !h.expired(now.At) }) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Sweep looks at a few names, so that those whose owners are gone do not pile up.
// Who still waits there finds out by asking.
func (l *Table) Sweep(now Now) {
	looks := 2
	for name, e := range l.Names {
		if looks--; looks < 0 {
			return
		}
		if !slices.ContainsFunc(e.Queue, func(p Waiter) bool { return !p.expired(now.At) }) {
			e.expire(now.At)
			l.removeUnused(name)
		}
	}
}

// entry returns the entry of a name, a new one that is kept if it is used.
func (l *Table) lock(name string) *Lock {
	e := l.Names[name]
	if e == nil {
		e = new(Lock)
		l.Names[name] = e
	}
	return e
}

// forget drops entries that say nothing.
func (l *Table) removeUnused(names ...string) {
	for _, name := range names {
		if e := l.Names[name]; e != nil && len(e.Holders) == 0 && len(e.Queue) == 0 {
			delete(l.Names, name)
		}
	}
}

// serve gives the name to the waiters that fit, in order, by the ballot of who makes
// room. The first that does not fit blocks those behind it, or they would overtake it
// again and again; so does one that wants more names. That one is asked to look, if
// something has changed.
func (l *Table) serve(e *Lock, now Now, changed bool, b *driver.VoteRequest) []Notification {
	var mail []Notification
	for len(e.Queue) > 0 && e.fits(e.Queue[0].Weight, e.Queue[0].Limit) {
		p := e.Queue[0]
		if l.inRecoveryWindow(p.Vote, now) > 0 {
			break
		}
		if p.MultiLock {
			if changed {
				mail = append(mail, retry(p))
			}
			break
		}
		e.Queue = slices.Delete(e.Queue, 0, 1)
		fence := l.nextFence(now, cmp.Or(b, p.Vote))
		h := e.addHolder(p.Token, p.Client, p.Weight, p.Limit, fence, now.At+p.TTL)
		h.setOwner(p.Owner, now.At, p.MinHold)
		granted := driver.Event{Kind: driver.EventGranted, Token: p.Token, Fence: fence, Ticket: p.Ticket}
		if p.Vote != nil {
			granted.Node = l.Node
		}
		mail = append(mail, Notification{p.Client, granted})
		changed = true
	}
	return mail
}

func retry(p Waiter) Notification {
	return Notification{p.Client, driver.Event{Kind: driver.EventRetry, Token: p.Token}}
}

// mint makes a fence: it grows with the clock, and also when the clock does not. That of
// a ballot has the clock of a quorum.
func (l *Table) nextFence(now Now, b *driver.VoteRequest) uint64 {
	at := uint64(now.Wall.UnixMicro())
	if b != nil {
		at = b.Fence
	}
	l.Fence = max(l.Fence+1, at)
	return l.Fence
}
