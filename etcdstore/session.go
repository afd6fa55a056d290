package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	minTTL = 2 * time.Second // etcd's shortest lease with default settings

	// waiterTTL is the TTL of the session for a client's waiters. A waiter's request keeps its entry
	// for at least driver.WaiterTTL: the first TTL of a grant counts from it.
	waiterTTL = 10 * time.Second

	// longestShared is the longest TTL for which a client's leases share a session. A longer lease
	// has its own, which ends at its TTL after a crash.
	longestShared = time.Minute
)

// slack returns by how much a shared session outlasts the TTL of its leases. So a session need not
// be renewed for each new lease.
func slack(ttl time.Duration) time.Duration {
	return max(time.Second, min(ttl/6, 5*time.Second))
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// A session is a lease of etcd. Its entries end with it. It is safe for concurrent use.
type session struct {
	id     clientv3.LeaseID
	ttl    time.Duration
	shared bool // by a client's entries

	renewing chan struct{} // contains a value while nobody renews the session

	mu    sync.Mutex
	until time.Duration // etcd keeps the session until then at least
	ended bool          // etcd has no such lease

	entries int // how many entries use a session that is not shared
}

// errEnded means that a session ended, and its entries with it.
var errEnded = errors.New("the lease in etcd ended")

// lasts reports whether etcd certainly keeps the session until a time.
func (s *session) lasts(until time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended && s.until >= until
}

// isOver reports whether the session ended, or may have.
func (s *session) isOver(now time.Duration) bool { return !s.lasts(now) }

func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// leave records that an entry does not use the session any more. It returns false if others do.
func (s *session) leave() (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries--
	return s.entries == 0
}

func (s *session) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// suits reports whether a lease with a TTL can stay on the session. A session much longer than the
// TTL should not be renewed: after a crash, it would keep the name for too long.
func (s *session) suits(ttl, now time.Duration) bool {
	return s.ttl >= ttl && (s.ttl <= ttl+slack(ttl)+time.Second || s.lasts(now+ttl))
}

func (s *session) extendTo(until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = max(s.until, until)
}

// A leaser grants and renews sessions. It is safe for concurrent use.
type leaser struct {
	cli    *clientv3.Client
	clock  *bootclock.Clock
	fences *fences
	base   string // the key of the fences' base, for the read that verifies a renewal
}

// grant makes a session.
func (l *leaser) grant(ctx context.Context, ttl time.Duration) (*session, error) {
	sent := l.clock.Check()
	reply, err := l.cli.Grant(ctx, seconds(ttl))
	if err != nil {
		return nil, err
	}
	s := &session{id: reply.ID, ttl: time.Duration(min(reply.TTL, math.MaxInt64/int64(time.Second))) * time.Second, renewing: make(chan struct{}, 1), entries: 1}
	s.renewing <- struct{}{}
	s.until = sent + s.ttl
	return s, nil
}

// grantExactly is grant, but returns ErrInvalid if etcd's shortest lease is longer.
func (l *leaser) grantExactly(ctx context.Context, ttl time.Duration) (*session, error) {
	s, err := l.grant(ctx, ttl)
	if err != nil || s.ttl <= time.Duration(seconds(ttl))*time.Second {
		return s, err
	}
	_ = l.revoke(ctx, s)
	return nil, fmt.Errorf("%w: a lease of %v: the shortest in this etcd is %v, which its election timeout decides", driver.ErrInvalid, ttl, s.ttl)
}

// revoke ends a session that is no longer needed. If it fails, the session ends by its TTL.
func (l *leaser) revoke(ctx context.Context, s *session) error {
	s.end()
	_, err := l.cli.Revoke(ctx, s.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// keep renews a session unless etcd certainly keeps it for d from now. It returns errEnded if the
// session ended.
func (l *leaser) keep(ctx context.Context, s *session, d time.Duration) error {
	until := l.clock.Check() + min(d, s.ttl)
	if s.lasts(until) {
		return nil
	}
	select {
	case <-s.renewing:
		defer func() { s.renewing <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.lasts(until) {
		return nil
	}
	return l.renew(ctx, s)
}

// renew renews a session once. Its new end counts from the request, not from the reply.
//
// A leader that was stopped and resumes can answer before it learns that another leader took over,
// and that the session ended. Its term shows this: a linearizable read afterwards goes to the
// current leader.
func (l *leaser) renew(ctx context.Context, s *session) error {
	const tries = 3
	for range tries {
		var sent time.Duration
		reply, err := twice(ctx, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
			sent = l.clock.Check()
			return l.cli.KeepAliveOnce(ctx, s.id)
		})
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.end()
			return errEnded
		}
		if err != nil {
			return err
		}
		read, err := twice(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return l.cli.Get(ctx, l.base)
		})
		if err != nil {
			return err
		}
		if read.Header.RaftTerm == reply.RaftTerm {
			s.extendTo(sent + time.Duration(reply.TTL)*time.Second)
			if l.fences.keep(ctx, l.cli, l.base, read.Kvs) != nil {
				l.fences.doubt() // the renewal succeeded
			}
			return nil
		}
	}
	return errors.New("the leader of etcd changes")
}

// sessions are the sessions shared by a client's leases: one for its waiters, and one for each TTL.
// It is safe for concurrent use.
type sessions struct {
	*leaser

	mu  sync.Mutex
	all map[sessionKey]*sharedSession
}

type sessionKey struct {
	client  string
	seconds int64 // the TTL; zero: the waiters' session; -1: that for marks
}

// A sharedSession is replaced when it ends.
type sharedSession struct {
	granting chan struct{} // contains a value while nobody grants
	current  atomic.Pointer[session]
}

// forWaiters returns the client's session for its waiters. Etcd keeps it for driver.WaiterTTL.
func (ss *sessions) forWaiters(ctx context.Context, client string) (*session, error) {
	return ss.get(ctx, sessionKey{client, 0}, waiterTTL, driver.WaiterTTL, ss.grant)
}

// forMarks returns the session for the marks of cancelled requests, and for revocations. It is not
// renewed, so they end: another session replaces it.
func (ss *sessions) forMarks(ctx context.Context) (*session, error) {
	shared := ss.shared(sessionKey{seconds: -1})
	if err := shared.begin(ctx); err != nil {
		return nil, err
	}
	defer shared.end()
	if s := shared.current.Load(); s != nil && s.lasts(ss.clock.Check()+longestWay) {
		return s, nil
	}
	return ss.replace(ctx, shared, longestWay*5/4, ss.grant)
}

// forTTL returns a session for a lease. Etcd keeps it for the TTL.
func (ss *sessions) forTTL(ctx context.Context, client string, ttl time.Duration) (*session, error) {
	if ttl > longestShared {
		return ss.grantExactly(ctx, ttl)
	}
	key := sessionKey{client, seconds(ttl + slack(ttl))}
	return ss.get(ctx, key, time.Duration(key.seconds)*time.Second, ttl, ss.grantExactly)
}

func (ss *sessions) get(ctx context.Context, key sessionKey, ttl, needed time.Duration, grant func(context.Context, time.Duration) (*session, error)) (*session, error) {
	shared := ss.shared(key)
	if s := shared.current.Load(); s != nil && s.lasts(ss.clock.Check()+needed) {
		return s, nil
	}
	if err := shared.begin(ctx); err != nil {
		return nil, err
	}
	defer shared.end()
	if s := shared.current.Load(); s != nil && !s.isOver(ss.clock.Check()) {
		switch err := ss.keep(ctx, s, needed); {
		case err == nil:
			return s, nil
		case !errors.Is(err, errEnded):
			return nil, err
		}
	}
	return ss.replace(ctx, shared, ttl, grant)
}

// replace grants a session.
func (ss *sessions) replace(ctx context.Context, shared *sharedSession, ttl time.Duration, grant func(context.Context, time.Duration) (*session, error)) (*session, error) {
	s, err := grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	s.shared = true
	shared.current.Store(s)
	return s, nil
}

// begin waits until nobody grants or renews the session.
func (s *sharedSession) begin(ctx context.Context) error {
	select {
	case <-s.granting:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *sharedSession) end() { s.granting <- struct{}{} }

// shared returns the session with a key, which may not be granted yet. It removes ended sessions of
// any client.
func (ss *sessions) shared(key sessionKey) *sharedSession {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if shared := ss.all[key]; shared != nil {
		return shared
	}
	now := ss.clock.Now()
	for other, shared := range ss.all {
		if s := shared.current.Load(); s != nil && s.isOver(now) {
			delete(ss.all, other)
		}
	}
	shared := &sharedSession{granting: make(chan struct{}, 1)}
	shared.granting <- struct{}{}
	ss.all[key] = shared
	return shared
}

// find returns the shared session with an ID, or nil.
func (ss *sessions) find(id clientv3.LeaseID) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, shared := range ss.all {
		if s := shared.current.Load(); s != nil && s.id == id {
			return s
		}
	}
	return nil
}
