package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := checkAcquire(r); err != nil {
		return driver.AcquireReply{}, err
	}
	ctx, cancel, err := s.beginTurn(ctx, "acquire", r.Name, r.Token, r.Until)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	defer cancel()
	acquire := s.acquireOne
	if len(r.With) > 0 {
		acquire = s.acquireAll
	}
	reply, err := again(func() (driver.AcquireReply, error) { return acquire(ctx, r) })
	if err != nil {
		return driver.AcquireReply{}, unavailable("acquire", r.Name, err)
	}
	return reply, nil
}

// newValue returns the value for a request's entry.
func newValue(r driver.AcquireRequest) value {
	return value{
		Token: r.Token, Client: r.Client, Weight: r.Weight, Limit: r.Limit, TTL: milliseconds(leaseTTL(r)),
		Several: len(r.With) > 0, Since: time.Now().UnixMilli(),
	}
}

// leaseTTL is how long a crashed holder keeps the name.
func leaseTTL(r driver.AcquireRequest) time.Duration { return max(r.TTL, r.MinHold) }

// errAgain means that an entry changed during a request, so the request should read it again.
var errAgain = errors.New("the queue changed each time")

// attempts is how often a request is repeated if others change the queue at the same time.
const attempts = 100

// again repeats a request while it returns errAgain.
func again[R any](do func() (R, error)) (reply R, err error) {
	for range attempts {
		if reply, err = do(); !errors.Is(err, errAgain) {
			break
		}
	}
	return reply, err
}

func (s *Store) acquireOne(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	rec, ok := s.records.get(r.Name, r.Token)
	switch {
	case !ok:
		return s.acquireFirst(ctx, r)
	case rec.ending:
		return driver.AcquireReply{}, cmp.Or(s.finish(ctx, rec), errAgain)
	case rec.created == 0:
		return s.enter(ctx, r, rec) // the reply to an earlier request was lost
	default:
		return s.acquireAgain(ctx, r, rec)
	}
}

// acquireFirst sends the first request of a token.
func (s *Store) acquireFirst(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if c, ok := ownertoken.ClientOf(r.Token); !ok || c.ID != r.Client {
		// The application chose the token, so another process may have used it.
		if found, err := s.adopt(ctx, r.Name, r.Token); err != nil || found {
			return driver.AcquireReply{}, cmp.Or(err, errAgain)
		}
	}
	rec := record{name: r.Name, token: r.Token, value: newValue(r)}
	if !s.records.add(&rec, s.keys.queue(r.Name)) {
		return driver.AcquireReply{}, errAgain // another call did the same
	}
	return s.enter(ctx, r, rec)
}

// adopt makes a record for an entry that another process made. It returns false if there is none.
func (s *Store) adopt(ctx context.Context, name, token string) (bool, error) {
	q, _, err := s.read(ctx, name)
	if err != nil {
		return false, err
	}
	i := q.find(token)
	if i < 0 || q[i].Reserved {
		return false, nil
	}
	s.records.add(&record{name: name, token: token, key: q[i].key, created: q[i].created, changed: q[i].changed, value: q[i].value}, "")
	return true, nil
}

// enter adds an entry to an empty queue: it holds the name at once, so it gets a session with the
// lease's TTL. If the queue is not empty, the entry joins it. A request for both would be larger,
// and most queues are empty.
func (s *Store) enter(ctx context.Context, r driver.AcquireRequest, rec record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	lease, err := s.sessionFor(ctx, &rec, r.Client, leaseTTL(r))
	if err != nil {
		return driver.AcquireReply{}, s.notAdded(ctx, rec, err)
	}
	if !s.mayAdd(rec, sent+leaseTTL(r)) {
		return driver.AcquireReply{}, errAgain
	}
	reply, err := s.cli.Txn(ctx).If(s.notCancelled(rec), noneWithPrefix(s.keys.queue(r.Name))).
		Then(clientv3.OpPut(rec.key, rec.value.String(), clientv3.WithLease(lease.id))).Commit()
	switch {
	case err != nil:
		return driver.AcquireReply{}, s.notAdded(ctx, rec, err, lease)
	case reply.Succeeded:
		return s.entered(r, rec, lease, sent, reply.Header.Revision)
	case !r.Queue:
		return s.try(ctx, r, rec, lease, sent)
	}
	return s.join(ctx, r, rec, lease, sent)
}

// mayAdd records that a request to add an entry is sent. It returns false if the entry's record was
// removed, or its end was requested.
func (s *Store) mayAdd(rec record, expires time.Duration) bool {
	ok := s.records.update(rec, func(now *record) { now.inDoubt, now.expires = true, expires })
	s.sweeper.wakeAt(expires)
	return ok
}

// notAdded is noneAdded for a single entry.
func (s *Store) notAdded(ctx context.Context, rec record, err error, used ...*session) error {
	return s.noneAdded(ctx, []record{rec}, err, used...)
}

// forgetUnsent removes the record of an entry that no request can add.
func (s *Store) forgetUnsent(rec record) {
	s.records.change(rec, func(now *record) { now.inDoubt = false })
	s.forget(rec)
}

// entered records a holder, whose entry was created at a revision.
func (s *Store) entered(r driver.AcquireRequest, rec record, on *session, sent time.Duration, revision int64) (driver.AcquireReply, error) {
	rec.created, rec.changed, rec.session = revision, revision, on
	fence := s.fences.own(revision)
	if err := s.extended(rec, leaseTTL(r), fence, sent); err != nil {
		return driver.AcquireReply{}, err
	}
	return driver.AcquireReply{Held: true, Fence: fence}, nil
}

// afterRefusal returns errAgain if etcd refused a transaction because a session ended.
func (s *Store) afterRefusal(ctx context.Context, err error, used ...*session) error {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	for _, session := range used {
		if err := s.sessions.renew(ctx, session); err != nil && !errors.Is(err, errEnded) {
			return err
		}
	}
	return errAgain
}

// errCancelled means that a Cancel for the token came first.
var errCancelled = errors.New("the request was cancelled")

// join adds an entry to the end of a queue, and reads the queue. If the queue is empty by now, the
// entry holds the name at once. A shared request can hold the name beside other holders at once, so
// it also begins with the lease's session.
func (s *Store) join(ctx context.Context, r driver.AcquireRequest, rec record, lease *session, sent time.Duration) (driver.AcquireReply, error) {
	waits, err := s.sessions.forWaiters(ctx, r.Client)
	if err != nil {
		return driver.AcquireReply{}, s.notAdded(ctx, rec, err)
	}
	v, on := rec.value, lease
	if r.Exclusive() {
		v.Queued, on = true, waits
	}
	prefix := s.keys.queue(r.Name)
	mayEnter := s.notCancelled(rec)
	hold := clientv3.OpPut(rec.key, rec.value.String(), clientv3.WithLease(lease.id))
	wait := clientv3.OpPut(rec.key, v.String(), clientv3.WithLease(on.id))
	all := clientv3.OpGet(prefix, clientv3.WithPrefix())
	reply, err := s.cli.Txn(ctx).If(mayEnter, noneWithPrefix(prefix)).Then(hold, all).
		Else(clientv3.OpTxn([]clientv3.Cmp{mayEnter, absent(rec.key)}, []clientv3.Op{wait}, nil), all).Commit()
	if err != nil {
		return driver.AcquireReply{}, s.notAdded(ctx, rec, err, lease, waits)
	}
	q := readQueue(prefix, reply.Responses[1].GetResponseRange().GetKvs())
	i := q.findKey(rec.key)
	if i < 0 {
		return driver.AcquireReply{}, errCancelled
	}
	if !reply.Succeeded && !reply.Responses[0].GetResponseTxn().GetSucceeded() {
		q[i].distrust()
	}
	return s.decide(ctx, r, rec, q, i, reply.Header.Revision, sent)
}

// distrust marks a shared entry whose creation may have been no grant, because an earlier request
// added it, and perhaps behind others.
func (e *entry) distrust() {
	if !e.exclusive() && e.Fence == 0 && !e.Resized {
		e.Queued = true
	}
}

// acquireAgain answers a repeated request.
func (s *Store) acquireAgain(ctx context.Context, r driver.AcquireRequest, rec record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	q, revision, err := s.read(ctx, r.Name)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	i := q.findKey(rec.key)
	if i < 0 || q[i].created != rec.created || q[i].Token != r.Token || q[i].Reserved {
		s.fences.doubt()
		s.forget(rec)
		return driver.AcquireReply{}, errAgain
	}
	q[i].Client = r.Client
	if !rec.held {
		q[i].distrust()
	}
	if i >= q.granted() && !r.Queue {
		return s.withdraw(ctx, r, rec, q, i, revision)
	}
	return s.decide(ctx, r, rec, q, i, revision, sent)
}

// withdraw removes a waiter whose request no longer queues.
func (s *Store) withdraw(ctx context.Context, r driver.AcquireRequest, rec record, q queue, i int, revision int64) (driver.AcquireReply, error) {
	if _, err := s.end(ctx, rec); err != nil {
		return driver.AcquireReply{}, err
	}
	return s.refuse(ctx, r.Name, q, i, revision), nil
}

// refuse describes the queue to a request that does not wait. i is its entry's index, or the queue's
// length if it has none.
func (s *Store) refuse(ctx context.Context, name string, q queue, i int, revision int64) driver.AcquireReply {
	reply := s.busy(ctx, name, q, i, revision)
	reply.Position = 0
	return reply
}

// busy describes the queue to a waiter, whose entry has index i.
func (s *Store) busy(ctx context.Context, name string, q queue, i int, revision int64) driver.AcquireReply {
	reply := driver.AcquireReply{Name: name, Fence: s.fences.upTo(revision), Remaining: driver.WaiterTTL}
	holders := q.holders()
	reply.Position = i - len(holders) + 1
	if len(holders) == 0 {
		return reply
	}
	h := holders[0]
	reply.Holder, reply.Reserved, reply.Remaining = h.Token, h.Reserved, h.ttl()
	if h.foreign || h.Reserved || h.ttl() > longestShared {
		reply.Remaining = s.remainingOf(ctx, h)
	}
	return reply
}

// try adds an entry only if it holds the name at once. The queue is not empty.
func (s *Store) try(ctx context.Context, r driver.AcquireRequest, rec record, lease *session, sent time.Duration) (driver.AcquireReply, error) {
	for range attempts {
		q, revision, err := s.read(ctx, r.Name)
		if err != nil {
			return driver.AcquireReply{}, s.notAdded(ctx, rec, err)
		}
		if i := q.findKey(rec.key); i >= 0 { // an earlier request added it
			s.records.update(rec, func(now *record) { now.created, now.changed = q[i].created, q[i].changed })
			return driver.AcquireReply{}, errAgain
		}
		joined := append(slices.Clone(q), entry{value: rec.value, key: rec.key})
		if joined.granted() < len(joined) {
			if !rec.inDoubt {
				s.forgetUnsent(rec)
			}
			return s.refuse(ctx, r.Name, q, len(q), revision), nil
		}
		// All entries are holders, so none gets the name when another leaves.
		reply, err := s.cli.Txn(ctx).If(s.notCancelled(rec), unchangedSince(s.keys.queue(r.Name), revision)).
			Then(clientv3.OpPut(rec.key, rec.value.String(), clientv3.WithLease(lease.id))).Commit()
		if err != nil {
			return driver.AcquireReply{}, s.notAdded(ctx, rec, err, lease)
		}
		if reply.Succeeded {
			return s.entered(r, rec, lease, sent, reply.Header.Revision)
		}
	}
	return driver.AcquireReply{}, errAgain
}
