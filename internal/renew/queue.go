// Package renew contains the deadlines and renewals for a client's leases. A Queue orders the
// leases by the time of their next action, and leases due for renewal by their deadline. A
// Scheduler ends and renews them. Holder hides the consequences for a lease's users.
package renew

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/lease"
)

// A Place is a lease's place in a Queue, which guards it. The zero Place is in no queue.
type Place struct {
	at    time.Duration // time of the next action; if ready, the deadline
	early int32         // µs; the action may be done this long before, to share a batch
	index int32         // in the schedule, plus one; if ready, negative; or zero
}

func (p *Place) earliest(late time.Duration) time.Duration {
	return p.at - lease.Early(time.Duration(p.early)*time.Microsecond, late)
}

// A Queue contains a client's leases. A lease is scheduled until its next action is due: a renewal
// or the deadline. If its renewal is due, it is ready until there is room to send it. A Queue calls
// nothing while holding its lock. A lease calls it while holding its own lock. It is safe for
// concurrent use.
type Queue[H Holder] struct {
	wake chan struct{} // wakes the scheduler

	mu           sync.Mutex
	closed       bool
	scheduled    byTime[H]
	ready        byTime[H]
	suspects     []H           // to be renewed because the store may have lost them
	suspectSince time.Duration // those renewed by a later request are no suspects any more
	pace         pace          // for suspects
	shortestWait time.Duration // shortest time to the next action among the leases scheduled since the last tick
	wakeAt       time.Duration // when the scheduler wakes without a signal
}

// newQueue returns an empty queue.
func newQueue[H Holder]() *Queue[H] {
	return &Queue[H]{wake: make(chan struct{}, 1), wakeAt: clock.Never, shortestWait: clock.Never, scheduled: byTime[H]{side: 1}, ready: byTime[H]{side: -1}}
}

// byTime is a heap of leases.
type byTime[H Holder] struct {
	all  []H
	side int32 // sign of the leases' index
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

// first returns the first lease's place, or nil.
func (s *byTime[H]) first() *Place {
	if len(s.all) == 0 {
		return nil
	}
	return s.all[0].Place()
}

// Set schedules a lease's next action. It returns false after Close.
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

// MakeReady records that a lease's renewal is due.
func (q *Queue[H]) MakeReady(h H, deadline time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && h.Place().index != 0 {
		q.place(&q.ready, h, deadline, 0)
	}
}

// place puts a lease into a heap.
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

// Due returns up to n leases whose deadline has passed or whose renewal is due. If there is any,
// leases that can be renewed early follow. late is how late the
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

// postpone takes a heap's first lease, and leaves it in the schedule without an action.
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

// FirstDeadline returns the earliest deadline among the ready leases.
func (q *Queue[H]) FirstDeadline() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.ready.first(); p != nil {
		return p.at
	}
	return clock.Never
}

// PopReady returns up to n ready leases, the earliest deadlines first. The caller sets their next
// action; until then they have none.
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

// SuspectAll is like Suspect for all leases, without a limit: the store lost one.
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

// Sleep returns how long the scheduler can sleep without a signal. If leases are ready, there is
// room for one at a time.
func (q *Queue[H]) Sleep(now, room time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A timer stops while the machine is suspended, but a lease's TTL does not.
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
		// More leases like these will probably come and end before their first action. An early
		// tick saves the wake-up for each.
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
