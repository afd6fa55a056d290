package redisstore

import (
	"sync"
	"sync/atomic"
)

// A shard is what has to be kept apart for each server: its clock, and the requests
// that wait for it. Nobody tells which slot of a cluster is on which server, and that
// changes: so each slot is a shard of its own. A server that is dead holds up its own
// slots only.
type shard struct {
	pump  *pump
	clock *clock
}

// shards are those of one store. Without sharding there is one.
type shards struct {
	mu     sync.Mutex
	bySlot map[int]*shard
	last   *shard      // that was asked for
	differ atomic.Bool // the servers' clocks do
}

func newShards(conn Conn) *shards {
	c := newClock()
	return &shards{bySlot: make(map[int]*shard), last: &shard{clock: c, pump: &pump{conn: conn, clock: c}}}
}

// one returns the shard of a server that does not shard.
func (s *shards) one() *shard { return s.last }

// of returns the shard of a slot. A new one supposes that its server's clock is like
// that of the last one, until that was wrong once: then each learns it by a request that
// is void. If its clock is behind, that one request is void too late.
func (s *shards) of(slot int) *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.bySlot[slot]
	if found == nil {
		c := &clock{epoch: s.last.clock.epoch}
		if !s.differ.Load() {
			c = s.last.clock.guess(&s.differ)
		}
		found = &shard{clock: c, pump: &pump{conn: s.last.pump.conn, clock: c}}
		s.bySlot[slot] = found
	}
	s.last = found
	return found
}

// forget forgets all clocks: other servers may answer from now on.
func (s *shards) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.clock.forget()
	for _, one := range s.bySlot {
		one.clock.forget()
	}
}
