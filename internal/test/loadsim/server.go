package loadsim

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dibslock/dibs/memstore"
)

// A server executes all clients' requests in sequence, in the order of their arrival. It is safe
// for concurrent use.
type server struct {
	plan      Plan
	start     time.Time
	data      *memstore.Store
	work      chan struct{} // contains an element if the queue is not empty
	processor *processor    // the executing goroutine's processor

	mu      sync.Mutex
	random  *rand.Rand
	queue   []*request
	backlog time.Duration // the work for the queue and the current request
	broken  chan struct{} // closed when the connections break, and then replaced
	conns   int           // open connections
	down    bool
	ended   bool // nothing costs anything any more
	total   Step // since the run began
	peak    Peak // since the last step
}

// A request arrived at the server, or will arrive.
type request struct {
	kind    kind
	leases  int // in an extension
	work    time.Duration
	execute func()
	broken  chan struct{} // the connection's broken channel
	link    *link
	left    bool // guarded by the server: the caller no longer waits
	done    bool // guarded by the server: it was executed
	closes  bool // guarded by the server: the connection is closed after it
}

type kind int

const (
	acquires kind = iota
	releases
	extends
	others
	kinds
)

func newServer(p Plan) *server {
	return &server{
		plan: p, start: time.Now(), data: memstore.New(), work: make(chan struct{}, 1), processor: newProcessor(p.Events),
		random: rand.New(rand.NewPCG(p.Seed, 1)), broken: make(chan struct{}),
	}
}

func (s *server) now() time.Duration { return time.Since(s.start) }

// arrive adds a request to the queue. A request on a broken connection never arrives.
func (s *server) arrive(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != r.broken {
		return
	}
	s.queue = append(s.queue, r)
	s.backlog += r.work
	s.peak.Requests = max(s.peak.Requests, len(s.queue))
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// run executes requests until end is closed.
func (s *server) run(end <-chan struct{}) {
	for {
		r := s.next()
		if r == nil {
			select {
			case <-s.work:
			case <-end:
				return
			}
			continue
		}
		if until := s.finished(r); until > 0 {
			time.Sleep(until)
		}
		s.complete(r)
	}
}

func (s *server) next() *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil
		return nil
	}
	r := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	return r
}

// finished returns how long the processor needs for a request from now on.
func (s *server) finished(r *request) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0
	}
	now := s.now()
	return s.processor.run(now, r.work) - now
}

// complete makes the request take effect, unless the connections broke meanwhile.
func (s *server) complete(r *request) {
	s.mu.Lock()
	if s.broken != r.broken {
		s.mu.Unlock()
		return
	}
	s.backlog -= r.work
	s.total.count(r)
	r.done = true
	if r.closes {
		s.conns--
	}
	s.mu.Unlock()
	r.execute()
}

// restart ends all connections and the requests waiting on them.
func (s *server) restart(e Event) {
	s.mu.Lock()
	s.down = true
	s.queue, s.backlog, s.conns = nil, 0, 0
	close(s.broken)
	s.broken = make(chan struct{})
	s.mu.Unlock()
	if e.losesData {
		s.data.Restart()
	}
	time.Sleep(e.For)
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
}

// end makes the server as fast as it can be, for the clients to close.
func (s *server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.down = true, false
}

// sample returns the totals, and the peaks since the last sample.
func (s *server) sample() Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.total
	one.Backlog, one.Conns, one.Peak = s.backlog, s.conns, s.peak
	s.peak = Peak{}
	return one
}

// latency returns the latency of a request with its reply.
func (s *server) latency() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan.Latency/2 + rand64(s.random, s.plan.Latency)
}

func rand64(r *rand.Rand, n time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(n) + 1))
}
