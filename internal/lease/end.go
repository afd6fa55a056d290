package lease

import (
	"errors"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Reason is why a lease is not held.
type Reason uint8

// The reasons, and the state of a lease that is held. The losses come last.
const (
	Held        Reason = iota
	Unconfirmed        // attached, and not extended; it has not ended
	Merged             // its names belong to another lease
	Released           // by its owner
	Expired            // not renewed in time
	MaxHold            // its longest time has passed
	Taken              // the store no longer has it
	Revoked            // an operator released it
	Closed             // the client released it
)

// IsEnd reports whether the reason is the end of a lease.
func (r Reason) IsEnd() bool { return r >= Merged }

// IsLoss reports whether the lease ended before its owner released it.
func (r Reason) IsLoss() bool { return r >= Expired }

// IsExpiry reports whether the clock has ended the lease, and not an answer of the store.
func (r Reason) IsExpiry() bool { return r == Expired || r == MaxHold }

// An End is why and how a lease has ended.
type End struct {
	Reason  Reason
	Name    string // of several names, one that is lost, or the first
	Cause   error  // the last error of a renewal, if it explains the loss
	Message string // of the operator who revoked it
}

// TakenEnd returns the end of a lease whose name the store no longer has, according to the error of
// a request. The cause is what the error says of the loss, for instance of the value that the key
// has now. It is no ErrWrongType: the lease is lost in any case.
func TakenEnd(name string, err error) End {
	e := End{Reason: Taken, Name: name}
	var wrong *driver.WrongTypeError
	if errors.As(err, &wrong) {
		e.Cause = errors.New(strings.TrimPrefix(wrong.Error(), "dibs: "))
	} else if why, ok := strings.CutPrefix(err.Error(), driver.ErrLost.Error()+": "); ok {
		e.Cause = errors.New(why)
	}
	return e
}

// Reason returns why the lease is not held, or Held.
func (s *State) Reason() Reason { return s.Times.reason }

// End returns why the lease has ended, or is not confirmed, or Held.
func (s *State) End() End {
	e := s.readExtra().end
	e.Reason = s.Times.reason
	if e.Name == "" {
		e.Name = s.Name
	}
	return e
}

// DetectEnd returns true once, when the lease has ended.
func (s *State) DetectEnd() bool {
	if !s.Times.reason.IsEnd() || s.Times.endDetected {
		return false
	}
	s.Times.endDetected = true
	return true
}

// Release ends the lease by its owner.
func (s *State) Release() { s.Lose(End{Reason: Released}) }

// GiveAway ends the lease because its names belong to another one.
func (s *State) GiveAway() { s.Times.reason, s.Times.endDetected = Merged, true }

// Lose ends the lease, unless it has ended.
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

// Expire ends a lease whose deadline has passed.
func (s *State) Expire() {
	if s.Times.maxHoldReached {
		s.Lose(End{Reason: MaxHold})
		return
	}
	s.Lose(End{Reason: Expired, Cause: s.Times.RenewErr()})
}

// ExpireAt ends the lease if its deadline has passed. late is by how much this process was late,
// and unanswered is why a renewal has no answer.
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

// Revoke ends the lease if one of its names was revoked. The fence shows that the
// revocation is not about an earlier lease with this token.
func (s *State) Revoke(fence uint64, message string) {
	for _, n := range s.Names() {
		if n.Fence <= fence {
			s.Lose(End{Reason: Revoked, Name: n.Name, Message: message})
			return
		}
	}
}

// MayRemain reports whether the store may still have some of an ended lease. There
// are three cases: a late renewal succeeded, other names are left, or a minority of
// quorum nodes still has what the majority has lost.
func (s *State) MayRemain() bool {
	return s.Times.reason.IsExpiry() || s.Times.reason == Taken || s.More() > 0
}
