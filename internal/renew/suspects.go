package renew

import "time"

// Sample renews some leases now, because the store is available again after a failure, and may have
// lost them. It returns false if this was just done.
func (s *Scheduler[H]) Sample() bool {
	now := s.clock.Now()
	if !s.recovery.mayBegin(now) {
		return false
	}
	s.Suspect(sample(s.All()), now)
	return true
}

// Reconnected renews leases because the connection was lost, perhaps together with the store's
// data. A sample shows whether all data is lost. The last writes can be lost alone, so leases that
// were never renewed are also suspects.
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

// FailedOver renews all leases, because another server may have become the master without all
// writes.
func (s *Scheduler[H]) FailedOver() {
	now := s.restart()
	s.Suspect(s.All(), now)
}

// restart resets the estimates about the store, because another server may answer from now on.
func (s *Scheduler[H]) restart() (now time.Duration) {
	now = s.clock.Now()
	s.recovery.begin(now)
	s.gate.Restart()
	return now
}

// suspectRest renews all leases at once, because a lease in the sample is lost.
func (s *Scheduler[H]) suspectRest(sent time.Duration) {
	if s.recovery.finds(sent) {
		s.SuspectAll(sent)
	}
}
