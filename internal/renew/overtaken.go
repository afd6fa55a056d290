package renew

import (
	"runtime"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// checkFlights makes leases ready again if their renewal is lost, or may be. It reports whether
// there was such a lease.
func (s *Scheduler[H]) checkFlights(now time.Duration) bool {
	heard := s.gate.Heard()
	broken := s.flights.removeOvertaken(now, heard)
	for _, f := range broken {
		s.gate.End(&f.on, load.Unanswered)
		for _, h := range f.leases {
			s.sendAgain(h, now, f.sent)
		}
	}
	probed, measure := s.flights.probe(now, heard)
	if measure {
		s.client.Go(s.measureTurn)
	}
	if probed != nil {
		for _, h := range probed.leases[:min(probeSize, len(probed.leases))] {
			s.sendAgain(h, now, probed.sent)
		}
		for _, f := range s.flights.unreported(now) {
			for _, h := range f.leases {
				s.reportNoAnswer(h, f.sent)
			}
		}
	}
	return len(broken) > 0 || probed != nil
}

// sendAgain makes the renewal sent at sent due again.
func (s *Scheduler[H]) sendAgain(h H, now, sent time.Duration) {
	s.reportNoAnswer(h, sent)
	h.LockState().Times.SendAgain(now, sent)
	h.Commit()
}

// reportNoAnswer reports that a lease's renewal has no answer, if anybody is interested: recording
// the reason costs memory for each lease.
func (s *Scheduler[H]) reportNoAnswer(h H, sent time.Duration) {
	if !h.IsObserved() {
		return
	}
	times := &h.LockState().Times
	awaits := times.Awaits(sent)
	if awaits {
		times.RecordNoAnswer(s.flights.whyUnanswered())
	}
	h.UnlockState()
	if awaits {
		h.RenewFailed()
	}
}

// measureTurn measures how long a goroutine in this process waits to run.
func (s *Scheduler[H]) measureTurn() {
	began := s.clock.Now()
	runtime.Gosched()
	s.flights.measured(began, s.clock.Now())
	s.Signal()
}
