package renew

import (
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
)

const (
	maxBatch = 512 // leases in one renewal
	slice    = 512 // leases between two looks at the deadlines
)

// A Holder is a lease of a Scheduler: a State with its lock, and what follows from its transitions.
// Lock locks it, and Unlock or Commit unlocks it.
type Holder interface {
	comparable

	// Place returns the place in the queue of the scheduler.
	Place() *Place

	// Lock locks the lease and returns its state.
	Lock() *lease.State

	// Unlock unlocks a lease whose state was only read.
	Unlock()

	// Commit does what follows from a transition, and unlocks the lease. It sets the next action of a
	// lease that is held, and removes one that has ended. It reports whether the lease is held.
	Commit() bool

	// IsObserved reports whether anybody wants to know of a renewal that fails.
	IsObserved() bool

	// RenewFailed reports a renewal that has failed or has no answer. The lease is not locked.
	RenewFailed()

	// Renewed reports a renewal that has succeeded. The lease is not locked.
	Renewed()
}

// A Client is the client whose leases are renewed. It is safe for concurrent use.
type Client interface {
	// Identity returns the identity of the client.
	Identity() string

	// Go runs a job in the background. It returns false if the client has ended.
	Go(job func()) bool

	// Extend sends requests, which must be answered until then. It returns the result of each, and
	// what all of them say of the store.
	Extend(until time.Time, requests []driver.ExtendRequest) ([]error, load.Outcome)

	// Renewed reports a batch of leases that were renewed, and the headroom of the one that was
	// nearest to its loss. It must not block.
	Renewed(leases int, took time.Duration, headroom float64)
}

// A Scheduler is the queue of the leases of a client, and one goroutine that ends them at their
// deadlines and starts their renewals in batches. It never waits for the store, so a store that hangs
// delays no deadline. Deadlines go first; then come the renewals that are due, in the order of
// deadlines, as many as the budget has room for. It is safe for concurrent use.
type Scheduler[H Holder] struct {
	*Queue[H]
	client   Client
	clock    *clock.Clock
	gate     *load.Gate
	flights  flights[H]
	recovery recovery
}

// New returns a scheduler without leases. Run starts it. The gate calls SendMore when there is room
// for renewals again.
func New[H Holder](client Client, c *clock.Clock, gate *load.Gate) *Scheduler[H] {
	return &Scheduler[H]{Queue: newQueue[H](), client: client, clock: c, gate: gate}
}

// SendMore wakes the scheduler if it may send more renewals.
func (s *Scheduler[H]) SendMore() {
	if s.Ready() > 0 || s.flights.anyLate(s.clock.Now()) {
		s.Signal()
	}
}

// Run is the loop of the scheduler. It returns when done is closed.
func (s *Scheduler[H]) Run(done <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.tick())
		select {
		case <-timer.C:
		case <-s.wake:
		case <-done:
			return
		}
	}
}

// tick does what is due and returns how long to sleep.
func (s *Scheduler[H]) tick() time.Duration {
	now := s.clock.Check()
	late := s.Late(now)
	for s.checkDue(now, late) || s.checkFlights(now) || s.checkSuspects(now) || s.sendReady(now) {
		now = s.clock.Check()
	}
	sleep := s.Sleep(now, s.gate.Next(load.Renewal, s.patience(now)))
	return min(sleep, max(s.flights.next(s.gate.Heard())-now, time.Millisecond))
}

// checkDue ends leases whose deadline has passed, and makes those ready whose renewal is due. It
// reports whether there was one.
func (s *Scheduler[H]) checkDue(now, late time.Duration) bool {
	ahead := late
	if s.Len() > slice {
		ahead = 0 // its renewals may be why it is late, and more of them would make it worse
	}
	due := s.Due(now, ahead, slice)
	if len(due) == 0 {
		return false
	}
	unanswered := s.flights.whyUnanswered()
	for _, h := range due {
		if state := h.Lock(); state.Times.IsDue(now, ahead) {
			s.MakeReady(h, state.Times.Deadline())
			h.Unlock()
		} else {
			state.ExpireAt(now, late, unanswered)
			h.Commit()
		}
	}
	return true
}

// checkSuspects makes leases ready that the store may have lost, unless enough are. It reports
// whether there was one.
func (s *Scheduler[H]) checkSuspects(now time.Duration) bool {
	if s.Ready() >= slice {
		return false
	}
	some, since := s.PopSuspects(now, slice)
	for _, h := range some {
		h.Lock().Times.Doubt(now, since)
		h.Commit()
	}
	return len(some) > 0
}

// sendReady sends one batch of renewals, if there is room for it. It reports whether there was
// something to send.
func (s *Scheduler[H]) sendReady(now time.Duration) bool {
	ready := s.Ready()
	if ready == 0 {
		return false
	}
	sent, units := s.gate.Try(load.Renewal, load.Units(min(ready, maxBatch)), s.patience(now))
	if units == 0 {
		return false
	}
	f := s.newFlight(s.PopReady(min(load.Leases(units), maxBatch)), now, sent)
	if len(f.leases) == 0 {
		s.gate.End(&f.on, load.Dropped)
		return true
	}
	s.flights.add(f)
	s.client.Go(func() { s.renew(f) })
	return true
}

// patience returns how long the next renewal may wait after a failure.
func (s *Scheduler[H]) patience(now time.Duration) time.Duration {
	return max((s.FirstDeadline()-now)/4, 0)
}

// newFlight marks leases as being renewed, and returns them as a flight. Those whose answer would
// come too late are left out, and tried again later. The last one is always sent: its answer
// tells how fast the store is now.
func (s *Scheduler[H]) newFlight(ready []H, now time.Duration, on load.Sent) *flight[H] {
	needs := s.gate.Needs()
	f := &flight[H]{sent: now, on: on, leases: ready[:0], deadline: clock.Never}
	for i, h := range ready {
		times := &h.Lock().Times
		sent := (i == len(ready)-1 || !times.Postpone(now, needs)) && times.Send()
		if sent {
			f.deadline = min(f.deadline, times.Deadline())
			f.leases = append(f.leases, h)
		}
		h.Commit()
	}
	return f
}
