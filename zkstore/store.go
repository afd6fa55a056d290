package zkstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/driver/inbox"
	"github.com/dibslock/dibs/driver/turns"
	"github.com/go-zookeeper/zk"
)

// A Store is a driver.Store on ZooKeeper. It is safe for concurrent use.
type Store struct {
	config   config
	invalid  error // the options are invalid
	keys     layout
	clock    *bootclock.Clock
	sessions *sessions
	fences   *fences
	leader   *leaderClock
	records  *records
	inboxes  inbox.Inboxes
	views    *views
	sweeper  *sweeper
	turns    turns.Turns
	visits   visits
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Grouper        = (*Store)(nil)
	_ driver.Resizer        = (*Store)(nil)
	_ driver.Revoker        = (*Store)(nil)
	_ driver.WantedNotifier = (*Store)(nil)
	_ driver.Inspector      = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.Limiter        = (*Store)(nil)
)

// New returns a Store on the servers of an ensemble, as in "host:2181". The default port is 2181. New
// does no I/O. Close the Store after the clients of dibs. Without a server, each store call returns
// driver.ErrInvalid.
func New(servers []string, options ...Option) *Store {
	c := config{prefix: "/locks"}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	if c.acl == nil {
		c.acl = zk.WorldACL(zk.PermAll)
		if len(c.auth) > 0 {
			c.acl = zk.AuthACL(zk.PermAll)
		}
	}
	s := &Store{config: c, invalid: c.check(servers), keys: layout{c.prefix}, clock: bootclock.New()}
	s.visits.all = make(map[string]visit)
	s.records = &records{all: make(map[recordKey]*record)}
	s.sessions = newSessions(slices.Clone(servers), c, s.clock)
	s.fences = new(fences)
	s.leader = &leaderClock{clock: s.clock}
	s.views = &views{s: s, all: make(map[viewKey]*view)}
	s.sweeper = &sweeper{s: s}
	return s
}

// check returns ErrInvalid for servers or options that cannot be used.
func (c config) check(servers []string) error {
	switch {
	case len(servers) == 0 || slices.Contains(servers, ""):
		return errNoServers
	case c.format != Curator && c.format != Kazoo:
		return invalid("zkstore.Format(%d): want Curator or Kazoo", c.format)
	case c.tick < 0:
		return invalid("zkstore.Tick(%v): negative", c.tick)
	}
	return checkPrefix(c.prefix)
}

// Close ends the connections. The leases that clients still hold end with their TTL.
func (s *Store) Close() error {
	if s == nil || s.invalid != nil {
		return nil
	}
	s.sessions.close()
	return nil
}

// Limits implements driver.Limiter, for the tickTime of the option Tick or 2 s.
func (s *Store) Limits() driver.Limits {
	tick := cmp.Or(s.config.tick, defaultTick)
	return driver.Limits{MinTTL: tick, WaiterTTL: waiterTTL, Late: slack(tick) + tick + time.Second}
}

// Groups implements driver.Grouper: a transaction acquires all names.
func (s *Store) Groups(names []string) [][]string {
	return [][]string{slices.Compact(slices.Sorted(slices.Values(names)))}
}

// noLimit is the time limit of a request that has only its context.
var noLimit time.Time

// begin checks whether a request can be sent. It returns a context that ends at until or, if until
// is zero, at the deadline of ctx.
func (s *Store) begin(ctx context.Context, op, name string, until time.Time) (context.Context, context.CancelFunc, error) {
	unsent := func(cause error) error {
		return &driver.UnavailableError{Op: op, Name: name, Cause: cause, Unsent: true}
	}
	switch {
	case s == nil || s.sessions == nil:
		return nil, nil, errNoServers
	case s.invalid != nil:
		return nil, nil, s.invalid
	case ctx.Err() != nil:
		return nil, nil, unsent(context.Cause(ctx))
	case s.sessions.isClosed():
		return nil, nil, unsent(driver.ErrDisconnected)
	case !until.IsZero() && !time.Now().Before(until):
		return nil, nil, unsent(errLate)
	case until.IsZero():
		until = driver.DeadlineOf(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	if err := s.prepare(ctx); err != nil {
		cancel()
		if s.sessions.isClosed() { // meanwhile
			return nil, nil, unsent(driver.ErrDisconnected)
		}
		return nil, nil, beforehand(unavailable(op, name, err))
	}
	return ctx, cancel, nil
}

// prepare learns the servers' tick and the base of the fences.
func (s *Store) prepare(ctx context.Context) error {
	if s.fences.known() {
		return s.sessions.learn(ctx)
	}
	learned := make(chan error, 1)
	go func() { learned <- s.sessions.learn(ctx) }()
	err := s.loadBase(ctx)
	return cmp.Or(err, <-learned)
}

// beforehand returns the error of an operation whose own request was not sent.
func beforehand(err error) error {
	var e *driver.UnavailableError
	if errors.As(err, &e) && !e.Refused {
		e.Unsent = true
	}
	return err
}

// beginTurn is begin for a call that excludes others for its token.
func (s *Store) beginTurn(ctx context.Context, op, name, token string, until time.Time) (context.Context, context.CancelFunc, error) {
	ctx, cancel, err := s.begin(ctx, op, name, until)
	if err != nil {
		return nil, nil, err
	}
	end, err := s.turns.Begin(ctx, name, token)
	if err != nil {
		cancel()
		return nil, nil, &driver.UnavailableError{Op: op, Name: name, Cause: err, Unsent: true}
	}
	return ctx, func() { end(); cancel() }, nil
}

// checkAcquire returns ErrInvalid for a request that this store cannot accept.
func (s *Store) checkAcquire(r driver.AcquireRequest) error {
	if err := driver.CheckAcquire(r); err != nil {
		return err
	}
	switch {
	case r.Vote != nil:
		return invalid("acquire %q: a store on ZooKeeper cannot vote in a quorum: ZooKeeper is one already", r.Name)
	case len(r.With) >= driver.MaxNames:
		return invalid("acquire %q and others: %d names: more than %d", r.Name, len(r.With)+1, driver.MaxNames)
	}
	return nil
}

// checkTTL returns ErrInvalid for a TTL that is too short for the servers.
func (s *Store) checkTTL(op, name string, ttl time.Duration) error {
	if tick := s.sessions.tick(); ttl < tick {
		return invalid("%s %q: TTL %v: the shortest on these servers is their tickTime, %v", op, name, ttl, tick)
	}
	return nil
}

// read returns a name's queue, and the zxid of its last change.
func (s *Store) read(ctx context.Context, l *link, name string) (queue, int64, error) {
	names, pzxid, _, err := l.children(ctx, s.keys.queue(name), false)
	return s.queueOf(name, names, pzxid, err)
}

// queueOf interprets the answer to a read of a queue.
func (s *Store) queueOf(name string, names []string, pzxid int64, err error) (queue, int64, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	q, strange := readQueue(names)
	if strange != "" {
		return nil, 0, wrongType(s.keys.queue(name), strange)
	}
	return q, pzxid, nil
}

// readFresh is read, but with all changes that were answered before.
func (s *Store) readFresh(ctx context.Context, l *link, name string) (queue, int64, error) {
	if err := l.sync(ctx, s.keys.queue(name)); err != nil {
		return nil, 0, err
	}
	return s.read(ctx, l, name)
}
