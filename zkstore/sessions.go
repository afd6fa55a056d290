package zkstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
)

// defaultTick is ZooKeeper's tickTime in its sample configuration.
const defaultTick = 2 * time.Second

// slack returns by how much a session outlasts the TTL of its leases. It covers the time in which a
// proof of the session grows old.
func slack(tick time.Duration) time.Duration { return tick * 5 / 2 }

// waiterTTL is how long an entry waits without a heartbeat.
const waiterTTL = 10 * time.Second

// sessions are the sessions of this process, one for each TTL. A session for other requests, such as
// reads, is the control. They are safe for concurrent use.
type sessions struct {
	servers []string
	config  config
	clock   *bootclock.Clock

	mu      sync.Mutex
	all     map[time.Duration]*slot[session]
	known   time.Duration // the servers' tick; zero: not yet known
	longest time.Duration // the longest timeout of a session; zero: not yet known
	closed  bool
	begun   map[*session]bool // also those that are full
	work    sync.WaitGroup    // the goroutines of links; none begins after closed

	control *slot[link]
	probe   chan struct{} // contains a value while nobody asks for the tick
}

// A slot contains a session or a link, which is replaced when it ends.
type slot[S any] struct {
	opening chan struct{} // contains a value while nobody opens a session
	current atomic.Pointer[S]
}

func newSlot[S any]() *slot[S] {
	s := &slot[S]{opening: make(chan struct{}, 1)}
	s.opening <- struct{}{}
	return s
}

// enter waits until nobody opens a session.
func (s *slot[S]) enter(ctx context.Context) (leave func(), err error) {
	select {
	case <-s.opening:
		return func() { s.opening <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, unsentError{noServer(ctx)} // another call waits for a server
	}
}

func newSessions(servers []string, c config, clock *bootclock.Clock) *sessions {
	ss := &sessions{servers: servers, config: c, clock: clock, all: make(map[time.Duration]*slot[session]), begun: make(map[*session]bool), known: c.tick, control: newSlot[link](), probe: make(chan struct{}, 1)}
	ss.probe <- struct{}{}
	return ss
}

// tick returns the servers' tick.
func (ss *sessions) tick() time.Duration {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.known == 0 {
		return defaultTick
	}
	return ss.known
}

// bounds returns the servers' tick, and the longest timeout of a session or zero.
func (ss *sessions) bounds() (tick, longest time.Duration) {
	tick = ss.tick()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return tick, ss.longest
}

// learn asks the servers for their tick, once: their shortest session lasts for two ticks.
func (ss *sessions) learn(ctx context.Context) error {
	ss.mu.Lock()
	known := ss.known
	ss.mu.Unlock()
	if known != 0 {
		return nil
	}
	select {
	case <-ss.probe:
		defer func() { ss.probe <- struct{}{} }()
	case <-ctx.Done():
		return unsentError{noServer(ctx)}
	}
	ss.mu.Lock()
	known = ss.known
	ss.mu.Unlock()
	if known != 0 {
		return nil
	}
	l, err := ss.openLink(time.Millisecond)
	if err != nil {
		return unsentError{err}
	}
	defer func() { go l.close() }()
	if err := l.await(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	shortest := l.timeout
	l.mu.Unlock()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.known = shortest / 2
	return nil
}

// get returns the control. It waits until a server serves it.
func (ss *sessions) get(ctx context.Context) (*link, error) {
	if l := ss.control.current.Load(); l != nil && !l.hasEnded() {
		err := l.await(ctx)
		return l, err
	}
	leave, err := ss.control.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	l := ss.control.current.Load()
	if l == nil || l.hasEnded() {
		if l, err = ss.openLink(waiterTTL); err != nil {
			return nil, unsentError{err}
		}
		ss.control.current.Store(l)
		if ss.isClosed() { // since the check above, so close did not find the link
			l.drop()
			return nil, unsentError{driver.ErrDisconnected}
		}
	}
	err = l.await(ctx)
	return l, err
}

// openLink begins a session for requests without entries.
func (ss *sessions) openLink(timeout time.Duration) (*link, error) {
	if !ss.begins() {
		return nil, driver.ErrDisconnected
	}
	l, err := ss.config.newLink(ss.servers, ss.clock, timeout, func(time.Duration, time.Duration) {})
	if err != nil {
		ss.work.Done()
		return nil, err
	}
	go func() {
		defer ss.work.Done()
		<-l.closed
	}()
	return l, nil
}

func (ss *sessions) isClosed() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.closed
}

// forTTL returns a session that lasts for a TTL from now. size is that of a new entry's
// path. The caller uses the session: it calls leave in the end. If no session lasts for so long, the error is errTooLong.
func (ss *sessions) forTTL(ctx context.Context, ttl time.Duration, size int) (*session, error) {
	if err := ss.learn(ctx); err != nil {
		return nil, err
	}
	for ss.fits(ttl) {
		s, err := ss.forTimeout(ctx, ss.timeoutFor(ttl), ttl, size)
		if !errors.Is(err, errTooLong) {
			return s, err
		}
	}
	return nil, errTooLong
}

// errTooLong means that no session lasts for a TTL.
var errTooLong = errors.New("no session lasts for so long")

func (ss *sessions) forTimeout(ctx context.Context, timeout, ttl time.Duration, size int) (*session, error) {
	slot := ss.slot(timeout)
	if s := slot.current.Load(); s != nil && s.lasts(ss.clock.Check()+ttl) && s.use(size) {
		return s, nil
	}
	leave, err := slot.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if s := slot.current.Load(); s != nil {
		if used, err := ss.renew(ctx, s, ttl, size); used || err != nil {
			return s, err
		}
		go s.retire(0)
	}
	s, err := ss.begin(ctx, timeout, size)
	if err != nil {
		return nil, err
	}
	if err := ss.check(s, ttl); err != nil {
		s.leave(size)
		go s.retire(0)
		return nil, err
	}
	slot.current.Store(s)
	return s, nil
}

// renew waits for the proof of a session that others use. It returns false if a new session should
// replace it, which begins at once.
func (ss *sessions) renew(ctx context.Context, s *session, ttl time.Duration, size int) (used bool, err error) {
	until := ss.clock.Check() + ttl
	if !s.lasts(until) && !s.isUsed() || !s.use(size) {
		return false, nil
	}
	err = s.keep(ctx, until)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errEnded):
		s.leave(size)
		return false, nil
	}
	s.leave(size)
	return false, unsentError{err}
}

// check returns an error if the servers gave a session another timeout, so it does not suit a TTL.
func (ss *sessions) check(s *session, ttl time.Duration) error {
	length := s.length()
	switch {
	case length < s.asked:
		ss.mu.Lock()
		ss.longest = length
		ss.mu.Unlock()
		return errTooLong
	case length > s.asked:
		return fmt.Errorf("%w: a lease of %v: the shortest session of these servers lasts for %v", driver.ErrInvalid, ttl, length)
	}
	return nil
}

// begin begins a session, waits for it, and uses it.
func (ss *sessions) begin(ctx context.Context, timeout time.Duration, size int) (*session, error) {
	if ss.isClosed() {
		return nil, unsentError{driver.ErrDisconnected}
	}
	s, err := ss.open(timeout)
	if err != nil {
		return nil, unsentError{err}
	}
	if ss.isClosed() { // since the check above, so close did not find the session
		s.drop()
		return nil, unsentError{driver.ErrDisconnected}
	}
	s.use(size)
	if err := s.await(ctx); err != nil {
		s.leave(size)
		go s.retire(0)
		return nil, err
	}
	return s, nil
}

// timeoutFor returns the timeout of a session for a TTL: not much longer, so that TTLs share sessions.
func (ss *sessions) timeoutFor(ttl time.Duration) time.Duration {
	tick, longest := ss.bounds()
	const most = time.Hour // the servers allow less
	timeout := min(ttl+slack(tick), most)
	step := time.Second
	for step*16 <= timeout {
		step *= 2
	}
	rounded := timeout.Truncate(step)
	if rounded < timeout {
		rounded += step
	}
	if longest > 0 && rounded > longest && timeout <= longest {
		return longest
	}
	return rounded
}

// fits reports whether a session can last for a TTL.
func (ss *sessions) fits(ttl time.Duration) bool {
	tick, longest := ss.bounds()
	return longest == 0 || ttl+slack(tick) <= longest
}

// slot returns the slot for a timeout.
func (ss *sessions) slot(timeout time.Duration) *slot[session] {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.all[timeout] == nil {
		ss.all[timeout] = newSlot[session]()
	}
	return ss.all[timeout]
}

// add records a session and the work for it, unless the store is closed. That ends with work.Done.
func (ss *sessions) add(s *session) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.closed {
		ss.work.Add(1)
		ss.begun[s] = true
	}
	return !ss.closed
}

func (ss *sessions) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.begun, s)
}

// find returns the session with an ID, or nil.
func (ss *sessions) find(id int64) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.begun {
		if id != 0 && s.hasID(id) {
			return s
		}
	}
	return nil
}

// close ends the sessions without entries. The others last until their timeout: a lease that is still
// held ends with its TTL.
func (ss *sessions) close() {
	ss.mu.Lock()
	ss.closed = true
	all := slices.Collect(maps.Keys(ss.begun))
	ss.mu.Unlock()
	var group sync.WaitGroup
	if l := ss.control.current.Load(); l != nil {
		group.Go(l.close)
	}
	for _, s := range all {
		if s.isUsed() {
			s.disconnect()
			continue
		}
		group.Go(s.close)
	}
	group.Wait()
	ss.work.Wait()
}

// begins records the work of a link, unless the store is closed. It ends with work.Done.
func (ss *sessions) begins() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.closed {
		ss.work.Add(1)
	}
	return !ss.closed
}
