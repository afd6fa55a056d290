package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/internal/serverclock"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Slots are the pipelines of one store: one for each hash slot of a cluster, one for each
// hash tag behind a proxy, else one. Slots move between the servers of a cluster, and replies
// do not say which server sent them, so state is kept per slot, not per server. A dead server
// delays only its own slots.
type Slots struct {
	conn    redisconn.Conn
	divided bool // there is more than one server
	prompt  bool
	single  *Pipeline // of a store with one server; else the first pipeline's model

	mu           sync.Mutex
	recent       map[wire.Route]*Pipeline
	older        map[wire.Route]*Pipeline // those that were not used since recent was empty
	last         *Pipeline                // the last one returned
	clocksDiffer atomic.Bool              // the servers' clocks differ
}

// maxRecent bounds the number of pipelines: there may be any number of hash tags. A cluster
// has not more slots. A pipeline that is forgotten only loses the server's clock.
const maxRecent = redisconn.SlotCount

// A Config is what pipelines need to know of their connection.
type Config struct {
	Conn    redisconn.Conn
	Sharded bool // the server is a cluster
	Proxy   bool // there is a proxy in front of the servers
	Prompt  bool // the Conn returns soon after the time until which a caller waits
}

// New returns the pipelines of a store. It does no I/O.
func New(c Config) *Slots {
	s := &Slots{conn: c.Conn, divided: c.Sharded || c.Proxy, prompt: c.Prompt && !c.Sharded, recent: make(map[wire.Route]*Pipeline)}
	s.single = newPipeline(c.Conn, serverclock.New())
	s.single.policy.prompt = s.prompt
	s.last = s.single
	return s
}

// Of returns the pipeline of a route. A new one assumes that its server's clock equals that
// of the last one, until this was wrong once. From then on each new one starts with a
// void request, which returns the time. If the assumption is wrong and the server's clock
// is behind, that one request becomes void too late.
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

// Age returns the time since an instant of the server's clock, in µs, if it is known. It is
// not known of one of several servers, which have different clocks.
func (s *Slots) Age(sent int64) time.Duration {
	if s.divided || sent <= 0 {
		return 0
	}
	return s.single.clock.Age(sent)
}
