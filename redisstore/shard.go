package redisstore

import "sync"

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
	last   *shard // that was asked for
}

func newShards(conn Conn) *shards {
	c := newClock()
	return &shards{bySlot: make(map[int]*shard), last: &shard{clock: c, pump: &pump{conn: conn, clock: c}}}
}

// one returns the shard of a server that does not shard.
func (s *shards) one() *shard { return s.last }

// of returns the shard of a slot. A new one supposes that its server's clock is like
// that of the last one: if it is not, one claim is void.
func (s *shards) of(slot int) *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.bySlot[slot]
	if found == nil {
		c := s.last.clock.guess()
		found = &shard{clock: c, pump: &pump{conn: s.last.pump.conn, clock: c}}
		s.bySlot[slot] = found
	}
	s.last = found
	return found
}
