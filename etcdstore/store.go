package etcdstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Store is a driver.Store on etcd. It is safe for concurrent use. Close the etcd client only after
// the clients of dibs.
type Store struct {
	cli      *clientv3.Client
	keys     layout
	clock    *clock.Clock
	fences   *fences
	sessions *sessions
	records  *records
	inboxes  *inboxes
	views    *views
	sweeper  *sweeper
	turns    turns

	verifyFrom atomic.Uint64 // see extension.verify
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Grouper        = (*Store)(nil)
	_ driver.Resizer        = (*Store)(nil)
	_ driver.Revoker        = (*Store)(nil)
	_ driver.WantedNotifier = (*Store)(nil)
	_ driver.Inspector      = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
)

// An Option configures a Store made by New. The zero value changes nothing.
type Option struct{ apply func(*Store) }

// Prefix sets the text before each name in its keys. The default is "lock/". The lock name then has
// the same keys as concurrency.NewMutex(session, prefix+name) and etcdctl lock prefix+name.
//
// In a key, dibs writes a slash in a name as %2F. For a lock of those libraries with a slash in its
// name, you should end the prefix with that slash.
func Prefix(prefix string) Option {
	return Option{func(s *Store) { s.keys.prefix = prefix }}
}

// New returns a Store on an etcd client, which stays the caller's. New does no I/O. If it is nil,
// each store call returns driver.ErrInvalid.
func New(cli *clientv3.Client, options ...Option) *Store {
	s := &Store{cli: cli, keys: layout{"lock/"}, clock: clock.New(), fences: new(fences), inboxes: newInboxes()}
	for _, o := range options {
		if o.apply != nil {
			o.apply(s)
		}
	}
	s.turns.all = make(map[recordKey]*callers)
	s.records = &records{all: make(map[recordKey]*record), ids: newIDs()}
	s.sessions = &sessions{leaser: &leaser{cli, s.clock, s.fences, s.keys.base()}, all: make(map[sessionKey]*sharedSession)}
	s.views = newViews(s)
	s.sweeper = newSweeper(s)
	return s
}

// Limits implements driver.Limiter.
func (s *Store) Limits() driver.Limits {
	return driver.Limits{MinTTL: minTTL, WaiterTTL: waiterTTL, Late: 2 * time.Second}
}

// Groups implements driver.Grouper: a transaction acquires all names.
func (s *Store) Groups(names []string) [][]string {
	return [][]string{slices.Compact(slices.Sorted(slices.Values(names)))}
}

// errLate means that a request came after its time limit.
var errLate = errors.New("the request came after its time limit")

// noLimit is the time limit of a request that has only its context.
var noLimit time.Time

// begin checks whether a request can be sent. It returns a context that ends at until or, if until
// is zero, at the deadline of ctx.
func (s *Store) begin(ctx context.Context, op, name string, until time.Time) (context.Context, context.CancelFunc, error) {
	unsent := func(cause error) error {
		return &driver.UnavailableError{Op: op, Name: name, Cause: cause, Unsent: true}
	}
	switch {
	case s == nil || s.cli == nil:
		return nil, nil, errNoClient
	case ctx.Err() != nil:
		return nil, nil, unsent(context.Cause(ctx))
	case !until.IsZero() && !time.Now().Before(until):
		return nil, nil, unsent(errLate)
	case until.IsZero():
		until = driver.DeadlineOf(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	if err := s.fences.load(ctx, s.cli, s.keys.base()); err != nil {
		cancel()
		return nil, nil, unavailable(op, name, err)
	}
	return ctx, cancel, nil
}

// beginTurn is begin for a call that excludes others for its token.
func (s *Store) beginTurn(ctx context.Context, op, name, token string, until time.Time) (context.Context, context.CancelFunc, error) {
	ctx, cancel, err := s.begin(ctx, op, name, until)
	if err != nil {
		return nil, nil, err
	}
	end, err := s.turns.begin(ctx, name, token)
	if err != nil {
		cancel()
		return nil, nil, &driver.UnavailableError{Op: op, Name: name, Cause: err, Unsent: true}
	}
	return ctx, func() { end(); cancel() }, nil
}

// checkAcquire returns ErrInvalid for a request that this store cannot accept.
func checkAcquire(r driver.AcquireRequest) error {
	if err := driver.CheckAcquire(r); err != nil {
		return err
	}
	switch {
	case r.Vote != nil:
		return invalid("acquire %q: a store on etcd cannot vote in a quorum: etcd is one already", r.Name)
	case r.TTL < minTTL:
		return invalid("acquire %q: TTL %v: the shortest in etcd is %v", r.Name, r.TTL, minTTL)
	}
	return nil
}

// read returns a name's queue, and the revision at which it was read.
func (s *Store) read(ctx context.Context, name string) (queue, int64, error) {
	prefix := s.keys.queue(name)
	reply, err := twice(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.cli.Get(ctx, prefix, clientv3.WithPrefix())
	})
	if err != nil {
		return nil, 0, err
	}
	return readQueue(prefix, reply.Kvs), reply.Header.Revision, nil
}

// exists is the condition that an entry still exists.
func exists(key string, created int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", created)
}

// absent is the condition that a key does not exist.
func absent(key string) clientv3.Cmp { return exists(key, 0) }

// noneWithPrefix is the condition that no key has a prefix.
func noneWithPrefix(prefix string) clientv3.Cmp { return absent(prefix).WithPrefix() }

// unchangedSince is the condition that no key with a prefix was written after a revision. Keys may
// have been deleted.
func unchangedSince(prefix string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(prefix), "<", revision+1).WithPrefix()
}

// remove deletes an entry. It returns false if the entry does not exist.
func (s *Store) remove(ctx context.Context, key string, created int64) (bool, error) {
	reply, err := s.cli.Txn(ctx).If(exists(key, created)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return false, err
	}
	return reply.Succeeded, nil
}

// move writes an entry's value, and binds the entry to a session. Its place in the queue stays the
// same. It returns the revision, or zero if the entry does not exist.
func (s *Store) move(ctx context.Context, key string, created int64, v value, to *session) (int64, error) {
	reply, err := twice(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.cli.Txn(ctx).If(exists(key, created)).Then(clientv3.OpPut(key, v.String(), clientv3.WithLease(to.id))).Commit()
	})
	if err != nil || !reply.Succeeded {
		return 0, err
	}
	return reply.Header.Revision, nil
}

func (s *Store) idOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
