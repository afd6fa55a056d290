// Package renew has the deadlines and the renewals of all leases of a client. A Queue orders them: by
// the time of their next action, and those whose renewal is due by their deadline. A Scheduler ends
// and renews them. What follows for the users of a lease is behind Holder.
package renew

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/lease"
)

// A Place is the place of a lease in a Queue, which guards it. The zero Place is in none.
type Place struct {
	at    time.Duration // of the next action; of a ready lease its deadline
	early int32         // µs; the action may be done this long before, to share a batch
	index int32         // in the schedule, plus one; in the ready leases, minus that; or zero
}

func (p *Place) earliest(late time.Duration) time.Duration {
	return p.at - lease.Early(time.Duration(p.early)*time.Microsecond, late)
}

// A Queue has the leases of a client. A lease is scheduled until its next action is due, which
// is a renewal or the deadline. If its renewal is due, it is ready, until there is room to send
// it. A Queue calls nothing while it holds its lock. A lease calls it while it holds its own. It
// is safe for concurrent use.
type Queue[H Holder] struct {
	wake chan struct{} // wakes the scheduler

	mu           sync.Mutex
	closed       bool
	scheduled    byTime[H]
	ready        byTime[H]
	suspects     []H           // to be renewed because the store may have lost them
	suspectSince time.Duration // those renewed by a later request are no suspects any more
	pace         pace          // of the suspects
	shortestWait time.Duration // of the leases scheduled since the last tick, the shortest time to the next action
	wakeAt       time.Duration // when the scheduler wakes without a signal
}

// newQueue returns an empty queue.
func newQueue[H Holder]() *Queue[H] {
	return &Queue[H]{wake: make(chan struct{}, 1), wakeAt: clock.Never, shortestWait: clock.Never, scheduled: byTime[H]{side: 1}, ready: byTime[H]{side: -1}}
}

// byTime is a heap of leases.
type byTime[H Holder] struct {
	all  []H
	side int32 // sign of their index
}

func (s *byTime[H]) Len() int           { return len(s.all) }
func (s *byTime[H]) Less(i, j int) bool { return s.all[i].Place().at < s.all[j].Place().at }
func (s *byTime[H]) Swap(i, j int) {
	s.all[i], s.all[j] = s.all[j], s.all[i]
	s.all[i].Place().index, s.all[j].Place().index = s.side*int32(i+1), s.side*int32(j+1)
}

func (s *byTime[H]) Push(x any) {
	h := x.(H)
	s.all = append(s.all, h)
	h.Place().index = s.side * int32(len(s.all))
}

func (s *byTime[H]) Pop() any {
	last := len(s.all) - 1
	h := s.all[last]
	var none H
	s.all[last] = none
	s.all = s.all[:last]
	h.Place().index = 0
	return h
}

// first returns the place of the first lease, or nil.
func (s *byTime[H]) first() *Place {
	if len(s.all) == 0 {
		return nil
	}
	return s.all[0].Place()
}

// Set schedules the next action of a lease. It returns false after Close.
func (q *Queue[H]) Set(h H, now, at, early time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.place(&q.scheduled, h, at, early)
	q.shortestWait = min(q.shortestWait, at-now)
	if at < q.wakeAt { // rare
		q.Signal()
	}
	return true
}

// MakeReady records that the renewal of a lease is due.
func (q *Queue[H]) MakeReady(h H, deadline time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && h.Place().index != 0 {
		q.place(&q.ready, h, deadline, 0)
	}
}

// place puts a lease into one of the heaps.
func (q *Queue[H]) place(into *byTime[H], h H, at, early time.Duration) {
	p := h.Place()
	if p.index*into.side <= 0 {
		q.removeFromHeap(h)
		p.at, p.early = at, int32(early.Microseconds())
		heap.Push(into, h)
		return
	}
	p.at, p.early = at, int32(early.Microseconds())
	heap.Fix(into, int(p.index*into.side-1))
}

// removeFromHeap removes a lease from its heap.
func (q *Queue[H]) removeFromHeap(h H) {
	switch i := int(h.Place().index); {
	case i > 0:
		heap.Remove(&q.scheduled, i-1)
	case i < 0:
		heap.Remove(&q.ready, -i-1)
	}
}

// Remove removes a lease.
func (q *Queue[H]) Remove(h H) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeFromHeap(h)
}

// All returns all leases.
func (q *Queue[H]) All() []H {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all()
}

func (q *Queue[H]) all() []H {
	return append(slices.Clone(q.scheduled.all), q.ready.all...)
}

// Len returns the number of leases.
func (q *Queue[H]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.len()
}

func (q *Queue[H]) len() int { return len(q.scheduled.all) + len(q.ready.all) }

// Close removes all leases, and returns them.
func (q *Queue[H]) Close() []H {
	q.mu.Lock()
	defer q.mu.Unlock()
	held := q.all()
	q.closed, q.scheduled.all, q.ready.all, q.suspects = true, nil, nil, nil
	for _, h := range held {
		h.Place().index = 0
	}
	return held
}

// Due returns up to n leases whose deadline has passed or whose renewal is due. If there is one
// of these, further ones that may be renewed early follow. late is how late the
// scheduler is. The caller sets their next action, or makes them ready; until then they have none.
func (q *Queue[H]) Due(now, late time.Duration, n int) (due []H) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p := q.ready.first(); p != nil && p.at <= now && len(due) < n; p = q.ready.first() {
		due = append(due, q.postpone(&q.ready))
	}
	p := q.scheduled.first()
	if p == nil || p.at-late > now {
		return due
	}
	for ; p != nil && p.earliest(late) <= now && len(due) < n; p = q.scheduled.first() {
		due = append(due, q.postpone(&q.scheduled))
	}
	return due
}

// postpone takes the first lease of a heap, and leaves it in the schedule without an action.
func (q *Queue[H]) postpone(from *byTime[H]) H {
	h := from.all[0]
	q.place(&q.scheduled, h, clock.Never, 0)
	return h
}

// Ready returns how many leases are ready.
func (q *Queue[H]) Ready() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ready.all)
}

// FirstDeadline returns the earliest deadline of those that are ready.
func (q *Queue[H]) FirstDeadline() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.ready.first(); p != nil {
		return p.at
	}
	return clock.Never
}

// PopReady returns up to n leases that are ready, the earliest deadlines first. The caller
// sets their next action; until then they have none.
func (q *Queue[H]) PopReady(n int) (batch []H) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(batch) < n && len(q.ready.all) > 0 {
		batch = append(batch, q.postpone(&q.ready))
	}
	return batch
}

// Suspect makes leases suspects: the store may have lost them before now. They are renewed at a
// limited pace.
func (q *Queue[H]) Suspect(some []H, now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.suspects, q.suspectSince = some, now
		q.Signal()
	}
}

// SuspectAll is Suspect for all leases without a limit: the store has lost one of them.
func (q *Queue[H]) SuspectAll(now time.Duration) {
	all := q.All()
	q.Suspect(all, now)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace = pace{}
}

// PopSuspects returns up to n suspects, and since when they are. Some may have been removed or
// renewed meanwhile.
func (q *Queue[H]) PopSuspects(now time.Duration, n int) (some []H, since time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.suspects) == 0 {
		return nil, 0
	}
	n = q.pace.allow(now, min(n, len(q.suspects)), q.len())
	some = q.suspects[:n:n]
	q.suspects = q.suspects[n:]
	return some, q.suspectSince
}

// Sleep returns how long the scheduler sleeps without a signal. If leases are ready, there is room
// for one at a time.
func (q *Queue[H]) Sleep(now, room time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A timer stops while the machine is suspended; the TTL of a lease does not.
	q.wakeAt = now + time.Second
	switch p := q.scheduled.first(); {
	case p != nil:
		q.wakeAt = min(q.wakeAt, p.at)
	case len(q.ready.all) == 0 && q.shortestWait == clock.Never: // no lease was scheduled since the last tick
		q.wakeAt = now + time.Hour
	}
	if p := q.ready.first(); p != nil {
		q.wakeAt = min(q.wakeAt, p.at, max(room, now+time.Millisecond))
	}
	if len(q.suspects) > 0 {
		q.wakeAt = min(q.wakeAt, max(q.pace.next(now, len(q.suspects), q.len()), now+time.Millisecond))
	}
	if q.shortestWait < clock.Never {
		// More leases like these will probably come and end before their first action. An
		// early tick spares each of them the wake-up.
		q.wakeAt = min(q.wakeAt, now+max(q.shortestWait, 0))
	}
	q.shortestWait = clock.Never
	return q.wakeAt - now
}

// Late returns how late the scheduler is at now.
func (q *Queue[H]) Late(now time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wakeAt == clock.Never {
		return 0
	}
	return max(now-q.wakeAt, 0)
}

// Signal wakes the scheduler.
func (q *Queue[H]) Signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
