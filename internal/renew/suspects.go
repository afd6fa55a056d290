package renew

import "time"

// Sample renews some leases now, because the store is available again after a failure,
// and may have lost them. It returns false if that was done just before.
func (s *Scheduler[H]) Sample() bool {
	now := s.clock.Now()
	if !s.recovery.mayBegin(now) {
		return false
	}
	s.Suspect(sample(s.All()), now)
	return true
}

// Reconnected renews leases because the connection to the store was lost, and perhaps the store's
// data. A sample tells whether it has lost all. The last writes may be lost alone: so leases that
// were never renewed are suspects, too.
func (s *Scheduler[H]) Reconnected() {
	now, all := s.restart(), s.All()
	some := sample(all)
	for _, h := range all[len(some):] {
		if h.LockState().Times.IsNew() {
			some = append(some, h)
		}
		h.UnlockState()
	}
	s.Suspect(some, now)
}

// FailedOver renews all leases, because another server may have become the master, which has not
// received all writes.
func (s *Scheduler[H]) FailedOver() {
	now := s.restart()
	s.Suspect(s.All(), now)
}

// restart forgets how the store has answered, because another one may answer from now on.
func (s *Scheduler[H]) restart() (now time.Duration) {
	now = s.clock.Now()
	s.recovery.begin(now)
	s.gate.Restart()
	return now
}

// suspectRest renews all leases at once, because one of the sample is lost.
func (s *Scheduler[H]) suspectRest(sent time.Duration) {
	if s.recovery.finds(sent) {
		s.SuspectAll(sent)
	}
}
