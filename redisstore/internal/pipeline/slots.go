package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/serverclock"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Slots are the pipelines for a store: one per hash slot in a cluster, one per hash tag behind a
// proxy, otherwise a single pipeline. Slots move between servers, and replies do not name their
// server, so state is kept per slot, not per server. A dead server delays only its own slots.
type Slots struct {
	conn    redisconn.Conn
	divided bool // several servers
	prompt  bool
	single  *Pipeline // for a store with one server; otherwise the model for the first pipeline

	mu           sync.Mutex
	recent       map[wire.Route]*Pipeline
	older        map[wire.Route]*Pipeline // not used since recent was cleared
	last         *Pipeline                // returned last
	clocksDiffer atomic.Bool              // the servers' clocks differ
}

// maxRecent limits the number of pipelines, because the number of hash tags is not limited. A
// cluster does not have more slots. A discarded pipeline loses only its bounds on the server's
// clock.
const maxRecent = redisconn.SlotCount

// A Config describes the connection to the pipelines.
type Config struct {
	Conn    redisconn.Conn
	Sharded bool // the server is a cluster
	Proxy   bool // a proxy is in front of the servers
	Prompt  bool // the Conn returns soon after the time until which a caller waits
}

// New returns the pipelines for a store. It does no I/O.
func New(c Config) *Slots {
	s := &Slots{conn: c.Conn, divided: c.Sharded || c.Proxy, prompt: c.Prompt && !c.Sharded, recent: make(map[wire.Route]*Pipeline)}
	s.single = newPipeline(c.Conn, serverclock.New())
	s.single.policy.prompt = s.prompt
	s.last = s.single
	return s
}

// Of returns the pipeline for a route. A new pipeline assumes the clock of the last used server,
// until this was wrong once. After that, each new pipeline starts with a void request, which
// returns the server's time. If the assumption is wrong and the server's clock is behind, a single
// request becomes void too late.
func (s *Slots) Of(at wire.Route) *Pipeline {
	if !s.divided {
		return s.single
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.recent[at]
	if found == nil {
		if found = s.older[at]; found == nil {
			found = s.add()
		}
		if len(s.recent) == maxRecent {
			s.older, s.recent = s.recent, make(map[wire.Route]*Pipeline)
		}
		s.recent[at] = found
	}
	s.last = found
	return found
}

func (s *Slots) add() *Pipeline {
	c := serverclock.New()
	if !s.clocksDiffer.Load() {
		c = s.last.clock.Guess(&s.clocksDiffer)
	}
	p := newPipeline(s.conn, c)
	p.policy.prompt = s.prompt
	return p
}

// Reset forgets all clocks, when other servers may reply from now on.
func (s *Slots) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.single.clock.Reset()
	for _, known := range []map[wire.Route]*Pipeline{s.recent, s.older} {
		for _, one := range known {
			one.clock.Reset()
		}
	}
}

// Age returns the time since an instant on the server's clock, in µs, if known. With several
// servers it is unknown, because their clocks differ.
func (s *Slots) Age(sent int64) time.Duration {
	if s.divided || sent <= 0 {
		return 0
	}
	return s.single.clock.Age(sent)
}
