package lease

import "time"

// Reason returns why the lease is not held, or Held.
func (s *State) Reason() Reason { return s.Times.reason }

// End returns why the lease ended, or Held.
func (s *State) End() End {
	e := s.readExtra().end
	e.Reason = s.Times.reason
	if e.Name == "" {
		e.Name = s.Name
	}
	return e
}

// DetectEnd returns true once, after the lease's end.
func (s *State) DetectEnd() bool {
	if !s.Times.reason.IsEnd() || s.Times.endDetected {
		return false
	}
	s.Times.endDetected = true
	return true
}

// Release ends the lease by its owner.
func (s *State) Release() { s.Lose(End{Reason: Released}) }

// GiveAway ends the lease because its names belong to another lease.
func (s *State) GiveAway() { s.Times.reason, s.Times.endDetected = Merged, true }

// Lose ends the lease, unless it already ended.
func (s *State) Lose(e End) {
	if s.Times.reason.IsEnd() {
		return
	}
	s.Times.reason = e.Reason
	if e.Name == s.Name {
		e.Name = "" // needs no memory
	}
	if e.Name != "" || e.Cause != nil || e.Message != "" {
		s.changeExtra().end = e
	}
}

// Expire ends a lease after its deadline.
func (s *State) Expire() {
	if s.Times.maxHoldReached {
		s.Lose(End{Reason: MaxHold})
		return
	}
	s.Lose(End{Reason: Expired, Cause: s.Times.RenewErr()})
}

// ExpireAt ends the lease if its deadline is over. late is by how much this process was late, and
// unanswered is why there was no answer to a renewal.
func (s *State) ExpireAt(now, late time.Duration, unanswered error) {
	t := &s.Times
	if t.reason.IsEnd() || now < t.deadline {
		return
	}
	switch {
	case t.RenewErr() != nil:
	case t.attempts > 0:
		t.setRenewErr(unanswered)
	case t.renewAt < t.deadline:
		t.setRenewErr(notSent(late))
	}
	s.Expire()
}

// Revoke ends the lease if one of its names was revoked. The fence proves that the revocation is
// not about an earlier lease with this token.
func (s *State) Revoke(fence uint64, message string) {
	for _, n := range s.Names() {
		if n.Fence <= fence {
			s.Lose(End{Reason: Revoked, Name: n.Name, Message: message})
			return
		}
	}
}

// MayRemain reports whether the store may still have parts of an ended lease. There are three
// cases: a late renewal succeeded, other names are left, or a minority of quorum nodes still keeps
// the lease that the majority lost.
func (s *State) MayRemain() bool {
	return s.Times.reason.IsExpiry() || s.Times.reason == Missing || s.More() > 0
}
