// Package lease contains a lease's state: a client's record about a lock that it holds. Times,
// replies and store errors go in. The next state, requests, and an End come out. The package uses
// neither lock nor clock: all times are arguments, in the client clock's time.
package lease

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
)

// A State is a lease: its names, its weight, its times, and the parts that may have to be removed
// at the store. Its methods are the transitions: times.go contains the deadline, loss.go ends the
// lease, renewal.go renews it. It is not safe for concurrent use.
type State struct {
	Name  string // the name acquired first, if there are several; it never changes
	Token string // it never changes
	Times Times

	fence         uint64
	weight, limit int32
	extra         *stateExtra // rarely used fields; or nil: a process can hold a million leases
}

// A stateExtra contains rarely used fields.
type stateExtra struct {
	more         []Named     // further names, held together with the first
	weightUnsure bool        // the store may have another weight
	late         *LateResize // a weight change that may still arrive at the store; or nil
	unanswered   *Unanswered // acquires for this lease without an answer
	lastFence    uint64      // the last reserved fence; or zero
	end          End         // without the reason
}

// A Named is a name in a lease, with its fence.
type Named struct {
	Name  string
	Fence uint64
}

// Granted returns the state of a lease that the store granted to a request. A renewal extends it by
// ttl.
func Granted(r driver.AcquireRequest, fence uint64, ttl time.Duration) State {
	s := State{Name: r.Name, Token: r.Token, fence: fence, weight: int32(r.Weight), limit: int32(r.Limit), Times: Times{ttl: ttl}}
	if len(r.With) > 0 {
		more := make([]Named, len(r.With))
		for i, name := range r.With {
			more[i] = Named{name, fence}
		}
		s.extra = &stateExtra{more: more}
	}
	return s
}

// Attached returns the state of a lease acquired by somebody else, with an unknown weight. Begin
// starts it, when the store extended it.
func Attached(names []Named, token string, now, ttl time.Duration) State {
	s := State{
		Name: names[0].Name, Token: token, fence: names[0].Fence, weight: 1, limit: driver.Unlimited,
		extra: &stateExtra{more: slices.Clone(names[1:]), weightUnsure: true}, Times: Times{ttl: ttl},
	}
	s.Times.MayExtend(now, driver.MaxTTL) // the TTL of the first owner is unknown
	return s
}

// readExtra returns a copy of the extra state, for reading.
func (s *State) readExtra() stateExtra {
	if s.extra == nil {
		return stateExtra{}
	}
	return *s.extra
}

// changeExtra returns the extra state, for changing it.
func (s *State) changeExtra() *stateExtra {
	if s.extra == nil {
		s.extra = new(stateExtra)
	}
	return s.extra
}

// Fence returns the first name's fence.
func (s *State) Fence() uint64 { return s.fence }

// More returns the number of further names.
func (s *State) More() int { return len(s.readExtra().more) }

// Names returns all names with their fences.
func (s *State) Names() []Named {
	return append([]Named{{s.Name, s.fence}}, s.readExtra().more...)
}

// Holds reports whether the lease holds a name.
func (s *State) Holds(name string) bool {
	return name == s.Name || slices.ContainsFunc(s.readExtra().more, func(n Named) bool { return n.Name == name })
}

// FenceOf returns a name's fence, or zero.
func (s *State) FenceOf(name string) uint64 {
	if name == s.Name {
		return s.fence
	}
	for _, n := range s.readExtra().more {
		if n.Name == name {
			return n.Fence
		}
	}
	return 0
}

// LastFence returns the lease's largest known fence.
func (s *State) LastFence() uint64 { return max(s.fence, s.readExtra().lastFence) }

// RecordFences records that fences up to last were reserved for the lease.
func (s *State) RecordFences(last uint64) {
	x := s.changeExtra()
	x.lastFence = max(x.lastFence, last)
}

// Merge adds another lease's names with the same token. The other lease never changes after this.
func (s *State) Merge(o *State) {
	other := o.readExtra()
	x := s.changeExtra()
	x.more = append(x.more, o.Names()...)
	x.unanswered = x.unanswered.merge(other.unanswered)
	s.Times.merge(&o.Times)
}

// AddUnanswered records that an acquire for the lease got no answer, and may arrive until then.
func (s *State) AddUnanswered(r driver.AcquireRequest, until time.Time) {
	x := s.changeExtra()
	x.unanswered = x.unanswered.merge(&Unanswered{Request: r, Until: until})
}

// Unanswered returns the lease's acquires without an answer.
func (s *State) Unanswered() *Unanswered { return s.readExtra().unanswered }

// UnansweredUntil returns until when a request without an answer may take effect, or the zero time.
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
