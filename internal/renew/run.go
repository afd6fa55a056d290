package renew

import (
	"time"

	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/load"
)

const (
	maxBatch = 512 // leases in a renewal
	slice    = 512 // leases between two looks at the deadlines
)

// SendMore wakes the scheduler if it may send more renewals.
func (s *Scheduler[H]) SendMore() {
	if s.Ready() > 0 || s.flights.anyLate(s.clock.Now()) {
		s.Signal()
	}
}

// Run is the scheduler's loop. It returns when done is closed.
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

// tick runs due actions and returns how long to sleep.
func (s *Scheduler[H]) tick() time.Duration {
	now := s.clock.Check()
	late := s.Late(now)
	for s.checkDue(now, late) || s.checkFlights(now) || s.checkSuspects(now) || s.sendReady(now) {
		now = s.clock.Check()
	}
	sleep := s.Sleep(now, s.gate.Next(load.Renewal, s.patience(now)))
	return min(sleep, max(s.flights.next(s.gate.Heard())-now, time.Millisecond))
}

// checkDue ends leases after their deadline, and makes leases ready when their renewal is due. It
// reports whether there was any.
func (s *Scheduler[H]) checkDue(now, late time.Duration) bool {
	ahead := late
	if s.Len() > slice {
		ahead = 0 // renewals may be the reason for running late, and more would make it worse
	}
	due := s.Due(now, ahead, slice)
	if len(due) == 0 {
		return false
	}
	unanswered := s.flights.whyUnanswered()
	for _, h := range due {
		if state := h.LockState(); state.Times.IsDue(now, ahead) {
			s.MakeReady(h, state.Times.Deadline())
			h.UnlockState()
		} else {
			state.ExpireAt(now, late, unanswered)
			h.Commit()
		}
	}
	return true
}

// checkSuspects makes leases ready that the store may have lost, unless enough are ready. It
// reports whether there was any.
func (s *Scheduler[H]) checkSuspects(now time.Duration) bool {
	if s.Ready() >= slice {
		return false
	}
	some, since := s.PopSuspects(now, slice)
	for _, h := range some {
		h.LockState().Times.Doubt(now, since)
		h.Commit()
	}
	return len(some) > 0
}

// sendReady sends a batch of renewals if there is room. It reports whether it sent anything.
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

// newFlight marks leases as being renewed, and returns them as a flight. It omits leases whose
// answer would come too late; they are tried again later. The last lease is always sent: its answer
// shows how fast the store is now.
func (s *Scheduler[H]) newFlight(ready []H, now time.Duration, on load.Sent) *flight[H] {
	needs := s.gate.Needs()
	f := &flight[H]{sent: now, on: on, leases: ready[:0], deadline: clock.Never}
	for i, h := range ready {
		times := &h.LockState().Times
		sent := (i == len(ready)-1 || !times.Postpone(now, needs)) && times.Send()
		if sent {
			f.deadline = min(f.deadline, times.Deadline())
			f.leases = append(f.leases, h)
		}
		h.Commit()
	}
	return f
}
