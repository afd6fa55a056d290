package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/serverclock"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Slots are the pipelines of one store: one for each hash slot of a cluster, else one. Slots
// move between the servers of a cluster, and replies do not say which server sent them, so
// state is kept per slot, not per server. A dead server delays only its own slots.
type Slots struct {
	conn    redisconn.Conn
	sharded bool
	single  *Pipeline // of a store that is not sharded; for a cluster, the first pipeline's model

	mu           sync.Mutex
	bySlot       map[int]*Pipeline
	last         *Pipeline   // the last one returned
	clocksDiffer atomic.Bool // the servers' clocks differ
}

// A Config is what pipelines need to know of their connection.
type Config struct {
	Conn    redisconn.Conn
	Sharded bool // the server is a cluster
	Prompt  bool // the Conn returns soon after the time until which a caller waits
}

// New returns the pipelines of a store. It does no I/O.
func New(c Config) *Slots {
	s := &Slots{conn: c.Conn, sharded: c.Sharded, bySlot: make(map[int]*Pipeline)}
	s.single = newPipeline(c.Conn, serverclock.New())
	s.single.policy.prompt = c.Prompt && !c.Sharded
	s.last = s.single
	return s
}

// Of returns the pipeline of a slot. A new one assumes that its server's clock equals that
// of the last one, until this was wrong once. From then on each new one starts with a
// void request, which returns the time. If the assumption is wrong and the server's clock
// is behind, that one request becomes void too late.
func (s *Slots) Of(slot int) *Pipeline {
	if !s.sharded {
		return s.single
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.bySlot[slot]
	if found == nil {
		c := serverclock.New()
		if !s.clocksDiffer.Load() {
			c = s.last.clock.Guess(&s.clocksDiffer)
		}
		found = newPipeline(s.conn, c)
		s.bySlot[slot] = found
	}
	s.last = found
	return found
}

// Reset forgets all clocks, when other servers may reply from now on.
func (s *Slots) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.single.clock.Reset()
	for _, one := range s.bySlot {
		one.clock.Reset()
	}
}

// Age returns the time since an instant of the server's clock, in µs, if it is known. It is
// not known in a cluster, where servers have different clocks.
func (s *Slots) Age(sent int64) time.Duration {
	if s.sharded || sent <= 0 {
		return 0
	}
	return s.single.clock.Age(sent)
}
