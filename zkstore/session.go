package zkstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

// A session is a session in ZooKeeper whose entries are leases. The store knows how long it lasts.
// It is safe for concurrent use.
//
// Neither an answered read nor a ping proves that the session lasts: a server that lost its leader
// answers both, and the leader ends the session meanwhile. The proof has two steps. A server reports
// the sessions that sent a request to its leader within a tick. So the session lasts for its timeout
// from a request, if a write was sent a tick after the answer to this request, and was committed by
// a majority.
type session struct {
	*link
	asked time.Duration // the timeout that was asked for
	tick  time.Duration // of the servers

	mu      sync.Mutex
	touches []touch       // answered requests, in their order
	until   time.Duration // it lasts until then at least; zero: it did not begin
	proved  chan struct{} // closed when until changes
	uses    int           // by entries, and by requests for new ones
	size    int           // of their paths
	idle    time.Duration // since when nobody uses it
	retired bool          // nobody can use it any more
}

// A touch is an answered request.
type touch struct{ sent, answered time.Duration }

// open begins a session. It does not wait for a server.
func (ss *sessions) open(timeout time.Duration) (*session, error) {
	s := &session{asked: timeout, tick: ss.tick(), proved: make(chan struct{}), idle: ss.clock.Now()}
	began := make(chan struct{})
	l, err := ss.config.newLink(ss.servers, ss.clock, timeout, func(dialed, at time.Duration) {
		<-began
		s.begin(dialed, at)
	})
	if err != nil {
		return nil, err
	}
	s.link = l
	close(began)
	if !ss.add(s) {
		s.close()
		return nil, driver.ErrDisconnected
	}
	go func() {
		defer ss.work.Done()
		s.prove(ss.config.prefix)
		ss.remove(s)
		<-s.closed
	}()
	return s, nil
}

// begin records a connection. A majority writes a new session, so it lasts from its request.
func (s *session) begin(dialed, at time.Duration) {
	s.mu.Lock()
	first := s.until == 0
	s.mu.Unlock()
	s.touch(dialed, at)
	if first {
		s.extendTo(dialed + s.length())
	}
}

// length returns the session's timeout.
func (s *session) length() time.Duration {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return s.link.timeout
}

// touch records an answered request.
func (s *session) touch(sent, answered time.Duration) {
	const kept = 32
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.touches) == kept {
		s.touches = slices.Delete(s.touches, 0, 1)
	}
	s.touches = append(s.touches, touch{sent, answered})
}

// wrote records that a majority wrote a request.
func (s *session) wrote(sent, answered time.Duration) {
	length := s.length()
	s.mu.Lock()
	var from time.Duration
	for _, t := range s.touches {
		if t.answered+s.tick <= sent {
			from = max(from, t.sent)
		}
	}
	s.mu.Unlock()
	if from > 0 {
		s.extendTo(from + length)
	}
	s.touch(sent, answered)
}

func (s *session) extendTo(until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until > s.until {
		s.until = until
		close(s.proved)
		s.proved = make(chan struct{})
	}
}

// lasts reports whether ZooKeeper certainly keeps the session until a time.
func (s *session) lasts(until time.Duration) bool {
	if s.hasEnded() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until >= until
}

// keep waits until the session certainly lasts until a time.
func (s *session) keep(ctx context.Context, until time.Duration) error {
	for {
		s.mu.Lock()
		lasts, proved := s.until >= until, s.proved
		s.mu.Unlock()
		_, ended, changed := s.state()
		switch {
		case ended:
			return errEnded
		case lasts:
			return nil
		}
		select {
		case <-proved:
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mostPaths limits the size of all paths of a session's entries, in bytes. When the session ends,
// ZooKeeper writes them into a single transaction. No server can read a transaction larger than
// 1 MB, or 2 MB in version 3.9, so the ensemble would stop.
const mostPaths = 840_000

// use records an entry, or a request for one, with the size of its path. It returns false if the
// session was retired, or is full.
func (s *session) use(size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired || s.size+size > mostPaths {
		return false
	}
	s.uses++
	s.size += size
	return true
}

// reuse records another user of a place on the session.
func (s *session) reuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses++
}

// leave is the reverse of use.
func (s *session) leave(size int) {
	if s == nil {
		return
	}
	at := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses--
	s.size -= size
	s.idle = at
}

func (s *session) isUsed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uses > 0
}

// longestIdle is how long a session without entries is kept for the next one.
const longestIdle = 20 * time.Second

// prove sends requests that prove how long the session lasts, until it ends. A sixth of the slack
// passes between two requests, and each second one is a write.
func (s *session) prove(path string) {
	pause := slack(s.tick) / 6
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), max(2*pause, time.Second))
		s.proveOnce(ctx, path, n%2 == 1)
		cancel()
		if s.hasEnded() {
			return
		}
		if s.retire(longestIdle) {
			return
		}
		s.pause(pause)
	}
}

// pause waits for a time, or until the session ends.
func (s *session) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		_, ended, changed := s.state()
		if ended {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// proveOnce sends a read or a write. A failure only means that nothing is proved.
func (s *session) proveOnce(ctx context.Context, path string, write bool) {
	if s.await(ctx) != nil {
		return
	}
	sent := s.clock.Check()
	if !write {
		if _, err := call(ctx, s.link, func(c *zk.Conn) (bool, error) {
			exists, _, err := c.Exists(path)
			return exists, err
		}); err == nil {
			s.touch(sent, s.clock.Check())
		}
		return
	}
	// A check changes nothing. It fails if there is no such znode, but then a majority wrote that, too.
	_, err := s.multi(ctx, &zk.CheckVersionRequest{Path: path, Version: -1})
	if err == nil {
		s.wrote(sent, s.clock.Check())
	}
}

// retire ends the session if nobody used it for a time.
func (s *session) retire(idle time.Duration) bool {
	now := s.clock.Now()
	s.mu.Lock()
	s.retired = s.retired || s.uses == 0 && now-s.idle >= idle
	retired := s.retired
	s.mu.Unlock()
	if retired {
		s.close()
	}
	return retired
}
