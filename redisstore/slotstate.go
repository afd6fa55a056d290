package redisstore

import (
	"sync"
	"sync/atomic"
)

// A shard is what has to be kept apart for each server: its clock, and the requests
// that wait for it. Nobody tells which slot of a cluster is on which server, and that
// changes: so each slot is a shard of its own. A server that is dead holds up its own
// slots only.
type slotState struct {
	pipeliner *pipeliner
	clock     *clock
}

// shards are those of one store. Without sharding there is one.
type slotStates struct {
	mu     sync.Mutex
	bySlot map[int]*slotState
	last   *slotState  // that was asked for
	differ atomic.Bool // the servers' clocks do
}

func newSlotStates(conn Conn) *slotStates {
	c := newClock()
	return &slotStates{bySlot: make(map[int]*slotState), last: &slotState{clock: c, pipeliner: &pipeliner{conn: conn, clock: c}}}
}

// one returns the shard of a server that does not shard.
func (s *slotStates) one() *slotState { return s.last }

// of returns the shard of a slot. A new one supposes that its server's clock is like
// that of the last one, until that was wrong once: then each learns it by a request that
// is void. If its clock is behind, that one request is void too late.
func (s *slotStates) of(slot int) *slotState {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.bySlot[slot]
	if found == nil {
		c := &clock{epoch: s.last.clock.epoch}
		if !s.differ.Load() {
			c = s.last.clock.guess(&s.differ)
		}
		found = &slotState{clock: c, pipeliner: &pipeliner{conn: s.last.pipeliner.conn, clock: c}}
		s.bySlot[slot] = found
	}
	s.last = found
	return found
}

// forget forgets all clocks: other servers may answer from now on.
func (s *slotStates) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.clock.forget()
	for _, one := range s.bySlot {
		one.clock.forget()
	}
}
