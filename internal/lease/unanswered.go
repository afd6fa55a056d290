package lease

import (
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
)

// Unanswered is an acquire without an answer. It may still arrive at the store and acquire the name
// again after its lease was released.
type Unanswered struct {
	Request driver.AcquireRequest
	Until   time.Time // the request has no effect after this time
	Next    *Unanswered
}

// merge returns the tries of both lists.
func (u *Unanswered) merge(o *Unanswered) *Unanswered {
	if u == nil {
		return o
	}
	u.Next = u.Next.merge(o)
	return u
}

// AddUnanswered records that an acquire of the lease had no answer, and may arrive until then.
func (s *State) AddUnanswered(r driver.AcquireRequest, until time.Time) {
	x := s.changeExtra()
	x.unanswered = x.unanswered.merge(&Unanswered{Request: r, Until: until})
}

// Unanswered returns the acquires of the lease that had no answer.
func (s *State) Unanswered() *Unanswered { return s.readExtra().unanswered }

// UnansweredUntil returns until when a request of the lease without an answer may take effect, or
// the zero time.
func (s *State) UnansweredUntil() (until time.Time) {
	x := s.readExtra()
	if x.late != nil {
		until = x.late.Until
	}
	for u := x.unanswered; u != nil; u = u.Next {
		if end := u.Until.Add(clock.Slack); end.After(until) {
			until = end
		}
	}
	return until
}
