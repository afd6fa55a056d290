package redisstore

import (
	"sync"
	"sync/atomic"
)

// slotState holds the clock and the pipeliner of one hash slot. Slots move between the
// servers of a cluster, and replies do not say which server sent them, so state is kept
// per slot, not per server. A dead server delays only its own slots.
type slotState struct {
	pipeliner *pipeliner
	clock     *clock
}

// slotStates are the slot states of one store. A store that is not sharded has one.
type slotStates struct {
	mu           sync.Mutex
	bySlot       map[int]*slotState
	last         *slotState  // the last one returned
	clocksDiffer atomic.Bool // the servers' clocks differ
}

func newSlotStates(conn Conn) *slotStates {
	c := newClock()
	return &slotStates{bySlot: make(map[int]*slotState), last: &slotState{clock: c, pipeliner: &pipeliner{conn: conn, clock: c}}}
}

// single returns the state of a store that is not sharded.
func (s *slotStates) single() *slotState { return s.last }

// of returns the state of a slot. A new one assumes that its server's clock equals that
// of the last one, until this was wrong once. From then on each new one starts with a
// void request, which returns the time. If the assumption is wrong and the server's clock
// is behind, that one request becomes void too late.
func (s *slotStates) of(slot int) *slotState {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.bySlot[slot]
	if found == nil {
		c := &clock{epoch: s.last.clock.epoch}
		if !s.clocksDiffer.Load() {
			c = s.last.clock.guess(&s.clocksDiffer)
		}
		found = &slotState{clock: c, pipeliner: &pipeliner{conn: s.last.pipeliner.conn, clock: c}}
		s.bySlot[slot] = found
	}
	s.last = found
	return found
}

// reset clears all clocks, when other servers may reply from now on.
func (s *slotStates) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.clock.reset()
	for _, one := range s.bySlot {
		one.clock.reset()
	}
}
