package lease

import (
	"time"

	"github.com/dibslock/dibs/internal/clock"
)

// A Weight is how much a lease holds, out of how much there is.
type Weight struct {
	Weight, Limit int
	Unsure        bool // the store may have another weight
}

// Weight returns the lease's weight.
func (s *State) Weight() Weight {
	return Weight{int(s.weight), int(s.limit), s.readExtra().weightUnsure}
}

func (s *State) setWeight(w Weight) {
	s.weight, s.limit = int32(w.Weight), int32(w.Limit)
	if w.Unsure != s.readExtra().weightUnsure {
		s.changeExtra().weightUnsure = w.Unsure
	}
}

// A Resize is a weight change in progress: the record from before.
type Resize struct {
	before Weight
	late   *LateResize
}

// BeginResize begins a weight change. A smaller weight counts at once: a nested call that needs the
// larger weight must not enter, because the store can grant the difference to others before its
// reply arrives.
func (s *State) BeginResize(weight, limit int) Resize {
	before := s.Weight()
	during := before
	if weight < before.Weight {
		during.Weight, during.Limit = weight, limit
	}
	during.Unsure = true
	s.setWeight(during)
	return Resize{before: before, late: s.LateResize()}
}

// EndResize ends a weight change that was not made, as far as is known. Without an answer, the
// smaller weight counts: another change or a release follows.
func (s *State) EndResize(r Resize, answered bool) {
	mayFollow := s.LateResize() != r.late // an attempt for this change got no answer
	if !answered && mayFollow {
		return
	}
	r.before.Unsure = r.before.Unsure || mayFollow
	s.setWeight(r.before)
}

// Resized records that the store changed the weight. A fence never decreases, whatever a store
// answers after it lost data.
func (s *State) Resized(weight, limit int, fence uint64) {
	s.setWeight(Weight{Weight: weight, Limit: limit})
	s.fence = max(s.fence, fence)
}

// AddLate records that a weight change may arrive at the store until then. It returns the record
// from before.
func (s *State) AddLate(weight int, until time.Time) (before *LateResize) {
	before = s.LateResize()
	until = until.Add(clock.Slack)
	if before != nil && before.Until.After(until) {
		until = before.Until
	}
	s.SetLateResize(&LateResize{until, weight})
	return before
}

// LateResize returns the weight change that can still arrive at the store, or nil.
func (s *State) LateResize() *LateResize { return s.readExtra().late }

// SetLateResize sets which weight change may still arrive.
func (s *State) SetLateResize(late *LateResize) {
	if s.LateResize() != late {
		s.changeExtra().late = late
	}
}
