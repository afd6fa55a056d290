package etcdstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/driver/inbox"
	"github.com/dibslock/dibs/driver/turns"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Store is a driver.Store on etcd. It is safe for concurrent use. Close the etcd client only after
// the clients of dibs.
type Store struct {
	cli      *clientv3.Client
	keys     layout
	clock    *bootclock.Clock
	fences   *fences
	sessions *sessions
	records  *records
	inboxes  inbox.Inboxes
	views    *views
	sweeper  *sweeper
	turns    turns.Turns
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
// In a key, dibs writes a slash in a name as %2F, and a percent sign as %25. For a lock of those
// libraries with a slash in its name, you should end the prefix with that slash. They should not
// lock a folder that contains the prefix, such as lock for the default: they would wait for ever.
func Prefix(prefix string) Option {
	return Option{func(s *Store) { s.keys.prefix = prefix }}
}

// New returns a Store on an etcd client, which stays the caller's. New does no I/O. If the client is
// nil, each store call returns driver.ErrInvalid.
func New(cli *clientv3.Client, options ...Option) *Store {
	s := &Store{cli: cli, keys: layout{"lock/"}, clock: bootclock.New(), fences: new(fences)}
	for _, o := range options {
		if o.apply != nil {
			o.apply(s)
		}
	}
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
	case s.cli.Ctx().Err() != nil:
		return nil, nil, unsent(driver.ErrDisconnected)
	case !until.IsZero() && !time.Now().Before(until):
		return nil, nil, unsent(errLate)
	case until.IsZero():
		until = driver.DeadlineOf(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	if err := s.fences.load(ctx, s.cli, s.keys.base()); err != nil {
		cancel()
		return nil, nil, beforehand(unavailable(op, name, err))
	}
	return hiddenDeadline{ctx}, cancel, nil
}

// beforehand returns the error of an operation whose own request was not sent, because no member
// answered to an earlier one.
func beforehand(err error) error {
	var e *driver.UnavailableError
	if errors.As(err, &e) && !e.Refused {
		e.Unsent, e.Unreached = true, true
	}
	return err
}

// A hiddenDeadline is a context that ends at its deadline, but does not say when. So gRPC does not
// send the deadline to etcd, which would start a timer for each request: a tenth of a request's cost.
// When the context ends, gRPC cancels the request there.
type hiddenDeadline struct{ context.Context }

func (hiddenDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value returns the deadline for endOf.
func (u hiddenDeadline) Value(key any) any {
	if key == (endKey{}) {
		until, _ := u.Context.Deadline()
		return until
	}
	return u.Context.Value(key)
}

type endKey struct{}

// endOf returns when a context ends, also if its deadline is hidden.
func endOf(ctx context.Context) (until time.Time, limited bool) {
	if until, limited = ctx.Deadline(); !limited {
		until, _ = ctx.Value(endKey{}).(time.Time)
	}
	return until, !until.IsZero()
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
func checkAcquire(r driver.AcquireRequest) error {
	if err := driver.CheckAcquire(r); err != nil {
		return err
	}
	switch {
	case r.Vote != nil:
		return invalid("acquire %q: a store on etcd cannot vote in a quorum: etcd is one already", r.Name)
	case len(r.With) >= driver.MaxNames:
		return invalid("acquire %q and others: %d names: more than %d", r.Name, len(r.With)+1, driver.MaxNames)
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
	c := clientv3.CreateRevision(key) // equal; clientv3.Compare would copy it
	c.GetCompare().TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: created}
	return c
}

// unchanged is the condition that an entry was not written since its last known change.
func unchanged(key string, changed int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", changed)
}

// absent is the condition that a key does not exist.
func absent(key string) clientv3.Cmp { return exists(key, 0) }

// notCancelled is the condition that a request to add an entry was not cancelled.
func (s *Store) notCancelled(rec record) clientv3.Cmp { return absent(s.keys.cancelled(rec.request)) }

// noneWithPrefix is the condition that no key has a prefix.
func noneWithPrefix(prefix string) clientv3.Cmp {
	c := absent(prefix)
	c.GetCompare().RangeEnd = []byte(clientv3.GetPrefixRangeEnd(prefix))
	return c
}

// unchangedSince is the condition that no key with a prefix was written after a revision. Keys may
// have been deleted.
func unchangedSince(prefix string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(prefix), "<", revision+1).WithPrefix()
}

// move is moveAll for a single entry.
func (s *Store) move(ctx context.Context, rec *record, v value, to *session) error {
	recs := []record{*rec}
	err := s.moveAll(ctx, recs, to, func(moved *value) { *moved = v })
	if err == nil {
		*rec = recs[0]
	}
	return err
}
