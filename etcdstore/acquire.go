package etcdstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
	reply, err := acquire(ctx, r)
	if err != nil {
		return driver.AcquireReply{}, unavailable("acquire", r.Name, err)
	}
	return reply, nil
}

// newValue returns the value for a request's entry.
func newValue(r driver.AcquireRequest) value {
	v := value{Token: r.Token, Client: r.Client, Weight: r.Weight, Limit: r.Limit, TTL: r.TTL.Milliseconds(), Since: time.Now().UnixMilli()}
	if len(r.With) > 0 {
		v.With = r.Names()
	}
	return v
}

// leaseTTL is how long a crashed holder keeps the name.
func leaseTTL(r driver.AcquireRequest) time.Duration { return max(r.TTL, r.MinHold) }

// errAgain means that an entry changed during a request, so the request should read it again.
var errAgain = errors.New("the queue changed each time")

// attempts is how often a request is repeated if others change the queue at the same time.
const attempts = 100

func (s *Store) acquireOne(ctx context.Context, r driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	for range attempts {
		if rec, ok := s.records.get(r.Name, r.Token); ok {
			reply, err = s.acquireAgain(ctx, r, rec)
		} else {
			reply, err = s.acquireFirst(ctx, r)
		}
		if !errors.Is(err, errAgain) {
			break
		}
	}
	return reply, err
}

// acquireFirst sends the first request of a token.
func (s *Store) acquireFirst(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if c, ok := ownertoken.ClientOf(r.Token); !ok || c.ID != r.Client {
		// The application chose the token, so another process may have used it.
		if found, err := s.adopt(ctx, r.Name, r.Token); err != nil || found {
			return driver.AcquireReply{}, first(err, errAgain)
		}
	}
	rec := record{name: r.Name, token: r.Token, id: s.records.newID()}
	rec.key, rec.value = s.keys.queue(r.Name)+rec.id, newValue(r)
	reply, err := s.enter(ctx, r, rec)
	if err == nil && !reply.Held && reply.Ticket == 0 || err != nil && hasNoEffect(err) {
		if now, ok := s.records.get(r.Name, r.Token); ok && now.key == rec.key {
			s.leave(now.session)
		}
		s.records.remove(rec, true)
	}
	return reply, err
}

// first returns the first error that is not nil.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
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
	s.records.put(record{name: name, token: token, key: q[i].key, created: q[i].created, value: q[i].value})
	return true, nil
}

// enter adds an entry to a queue. If the queue is empty, the entry holds the name at once, so it
// gets a session with the lease's TTL. Otherwise a waiter gets its client's session for waiters.
func (s *Store) enter(ctx context.Context, r driver.AcquireRequest, rec record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	lease, err := s.sessions.forAttempt(ctx, r.Client, leaseTTL(r), rec.session)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	reply, err := s.enterOn(ctx, r, rec, lease, sent)
	s.leaveUnused(lease, err, rec)
	return reply, err
}

// leaveUnused revokes a session that an attempt had for itself, unless an entry is on it. After an
// unknown outcome, there may be one.
func (s *Store) leaveUnused(lease *session, err error, recs ...record) {
	if lease.shared || err != nil && !errors.Is(err, errAgain) && !hasNoEffect(err) {
		return
	}
	for _, rec := range recs {
		if now, ok := s.records.get(rec.name, rec.token); ok && now.session == lease {
			return
		}
	}
	lease.setEntries(1)
	s.leave(lease)
}

// enterOn is enter with a session for the lease.
func (s *Store) enterOn(ctx context.Context, r driver.AcquireRequest, rec record, lease *session, sent time.Duration) (driver.AcquireReply, error) {
	rec.session, rec.expires = lease, sent+leaseTTL(r)
	s.records.put(rec)
	s.sweeper.wakeAt(rec.expires)
	prefix := s.keys.queue(r.Name)
	notCancelled := absent(s.keys.cancelled(rec.id))
	put := clientv3.OpPut(rec.key, rec.value.String(), clientv3.WithLease(lease.id))
	join := clientv3.OpGet(prefix, clientv3.WithPrefix())
	waits := s.sessions.waitersNow(r.Client)
	if r.Queue && waits != nil {
		join = s.joinOp(r, rec, lease, waits, notCancelled)
	}
	reply, err := s.cli.Txn(ctx).If(notCancelled, noneWithPrefix(prefix)).Then(put).Else(join).Commit()
	if err != nil {
		return driver.AcquireReply{}, s.afterRefusal(ctx, err, lease, waits)
	}
	switch {
	case reply.Succeeded:
		return s.entered(r, rec, lease, sent, reply.Header.Revision), nil
	case !r.Queue:
		return s.try(ctx, r, rec, lease, sent)
	case waits == nil:
		return s.join(ctx, r, rec, lease, sent)
	}
	return s.joined(ctx, r, rec, lease, waits, sent, reply.Header.Revision, reply.Responses[0].GetResponseTxn())
}

// entered records a holder, whose entry was created at a revision.
func (s *Store) entered(r driver.AcquireRequest, rec record, on *session, sent time.Duration, revision int64) driver.AcquireReply {
	rec.created, rec.session, rec.held, rec.fence = revision, on, true, s.fences.own(revision)
	rec.expires = expiry(on, sent, leaseTTL(r))
	s.records.put(rec)
	s.sweeper.wakeAt(rec.expires)
	return driver.AcquireReply{Held: true, Fence: rec.fence}
}

// expiry returns when an entry should end without another request. Zero means: with its session,
// which it has for itself.
func expiry(on *session, sent, ttl time.Duration) time.Duration {
	if !on.shared {
		return 0
	}
	return sent + ttl
}

// afterRefusal returns errAgain if etcd refused a transaction because a session ended.
func (s *Store) afterRefusal(ctx context.Context, err error, used ...*session) error {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	for _, session := range used {
		if session == nil {
			continue
		}
		if err := s.sessions.renew(ctx, session); err != nil && !errors.Is(err, errEnded) {
			return err
		}
	}
	return errAgain
}

// joinOp returns the operation that adds an entry to the end of a queue, and then reads the queue. A
// shared request can hold the name beside other holders at once, so it begins with the lease's
// session. A later read could not show whether it does: a grant to another in between has a larger
// fence than the entry's creation.
func (s *Store) joinOp(r driver.AcquireRequest, rec record, lease, waits *session, notCancelled clientv3.Cmp) clientv3.Op {
	v, on := rec.value, lease
	if r.Exclusive() {
		v.Queued, on = true, waits
	}
	put := clientv3.OpPut(rec.key, v.String(), clientv3.WithLease(on.id))
	read := clientv3.OpGet(s.keys.queue(r.Name), clientv3.WithPrefix())
	return clientv3.OpTxn([]clientv3.Cmp{notCancelled, absent(rec.key)}, []clientv3.Op{put, read}, []clientv3.Op{read})
}

// join adds an entry to the end of a queue, after a request that found the queue in use.
func (s *Store) join(ctx context.Context, r driver.AcquireRequest, rec record, lease *session, sent time.Duration) (driver.AcquireReply, error) {
	waits, err := s.sessions.forWaiters(ctx, r.Client)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	op := s.joinOp(r, rec, lease, waits, absent(s.keys.cancelled(rec.id)))
	reply, err := s.cli.Do(ctx, op)
	if err != nil {
		return driver.AcquireReply{}, s.afterRefusal(ctx, err, lease, waits)
	}
	txn := reply.Txn()
	return s.joined(ctx, r, rec, lease, waits, sent, txn.Header.Revision, (*etcdserverpb.TxnResponse)(txn))
}

// errCancelled means that a Cancel for the token came first.
var errCancelled = errors.New("the request was cancelled")

// joined answers a request after joinOp, at a revision.
func (s *Store) joined(ctx context.Context, r driver.AcquireRequest, rec record, lease, waits *session, sent time.Duration, revision int64, join *etcdserverpb.TxnResponse) (driver.AcquireReply, error) {
	read := join.Responses[len(join.Responses)-1].GetResponseRange()
	q := readQueue(s.keys.queue(r.Name), read.GetKvs())
	i := q.findKey(rec.key)
	if i < 0 {
		return driver.AcquireReply{}, errCancelled
	}
	if !join.Succeeded {
		q[i].queuedIfShared()
	}
	e := q[i]
	rec.created, rec.value, rec.session = e.created, e.value, waits
	if e.lease == lease.id {
		rec.session = lease
	}
	rec.expires = expiry(rec.session, sent, waiterTTL)
	s.records.put(rec)
	s.sweeper.wakeAt(rec.expires)
	return s.decide(ctx, r, rec, q, i, revision, sent)
}

// decide answers a request whose entry is in the queue.
func (s *Store) decide(ctx context.Context, r driver.AcquireRequest, rec record, q queue, i int, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	if i < q.granted() {
		return s.hold(ctx, r, rec, q[i], i, revision, sent)
	}
	if err := s.waitOn(ctx, r, &rec, sent); err != nil {
		return driver.AcquireReply{}, err
	}
	reply := s.busy(q, i, revision)
	reply.Name, reply.Ticket = r.Name, uint64(rec.created)
	s.watchGrant(r, rec, q[i-1])
	return reply, nil
}

// hold answers a request whose entry holds the name. It binds the entry to a session with the
// lease's TTL.
func (s *Store) hold(ctx context.Context, r driver.AcquireRequest, rec record, e entry, i int, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	fence := s.fences.of(e)
	switch {
	case rec.held:
		fence = max(fence, rec.fence)
	case fence == 0:
		fence = s.fences.seen(revision, i)
	}
	if err := s.lengthen(ctx, &rec, e, leaseTTL(r), fence, sent); err != nil {
		return driver.AcquireReply{}, err
	}
	return driver.AcquireReply{Held: true, Fence: fence}, nil
}

// lengthen makes a holder's entry last for a TTL. If its session is too short or much too long, or
// is the waiters', the entry moves to another. It returns errAgain if the entry ended.
func (s *Store) lengthen(ctx context.Context, rec *record, e entry, ttl time.Duration, fence uint64, sent time.Duration) error {
	on := rec.session
	if on == nil || on.id != e.lease || e.Queued || !on.suits(ttl, s.clock.Check()) {
		return s.rebind(ctx, rec, e, ttl, fence, sent)
	}
	if err := s.sessions.keep(ctx, on, ttl); err != nil {
		return orAgain(err)
	}
	s.extended(rec, ttl, fence, sent)
	return nil
}

// orAgain returns errAgain for the end of a session.
func orAgain(err error) error {
	if errors.Is(err, errEnded) {
		return errAgain
	}
	return err
}

// rebind moves a holder's entry to a session with a TTL.
func (s *Store) rebind(ctx context.Context, rec *record, e entry, ttl time.Duration, fence uint64, sent time.Duration) error {
	to, err := s.sessions.forTTL(ctx, e.Client, ttl)
	if err != nil {
		return err
	}
	v := e.value
	v.TTL, v.Fence, v.Queued, v.Resized = ttl.Milliseconds(), fence, false, false
	revision, err := s.move(ctx, e.key, e.created, v, to)
	if err != nil {
		return s.afterRefusal(ctx, err, to)
	}
	if revision == 0 {
		return errAgain
	}
	s.leave(rec.session)
	rec.value, rec.session, rec.created = v, to, e.created
	s.extended(rec, ttl, fence, sent)
	return nil
}

// leave revokes a session that is not shared, after its last entry moved or ended. A multi-lock has
// several entries.
func (s *Store) leave(old *session) {
	if old == nil || old.shared || !old.dropEntry() {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), driver.OperationTimeout)
		defer cancel()
		s.sessions.revoke(ctx, old)
	}()
}

// extended records that a holder's entry lasts for a TTL.
func (s *Store) extended(rec *record, ttl time.Duration, fence uint64, sent time.Duration) {
	rec.held, rec.fence = true, fence
	until := expiry(rec.session, sent, ttl)
	if until != 0 {
		until = max(until, rec.expires)
	}
	rec.expires = until
	kept := *rec
	if !s.records.change(rec.name, rec.token, rec.key, func(r *record) { *r = kept }) {
		s.records.put(kept)
	}
	s.sweeper.wakeAt(until)
}

// waitOn binds a waiter's entry to its client's session for waiters, and keeps the session.
func (s *Store) waitOn(ctx context.Context, r driver.AcquireRequest, rec *record, sent time.Duration) error {
	waits, err := s.sessions.forWaiters(ctx, r.Client)
	if err != nil {
		return err
	}
	if rec.session != waits {
		v := rec.value
		v.Queued = true
		revision, err := s.move(ctx, rec.key, rec.created, v, waits)
		if err != nil {
			return s.afterRefusal(ctx, err, waits)
		}
		if revision == 0 {
			return errAgain
		}
		s.leave(rec.session)
		rec.value, rec.session = v, waits
	}
	rec.expires = sent + waiterTTL
	s.records.change(rec.name, rec.token, rec.key, func(now *record) {
		now.value, now.session, now.expires, now.created = rec.value, rec.session, rec.expires, rec.created
	})
	s.sweeper.wakeAt(rec.expires)
	return nil
}

// acquireAgain answers a repeated request.
func (s *Store) acquireAgain(ctx context.Context, r driver.AcquireRequest, rec record) (driver.AcquireReply, error) {
	if rec.created == 0 {
		return s.enter(ctx, r, rec) // the reply to an earlier request was lost
	}
	sent := s.clock.Check()
	q, revision, err := s.read(ctx, r.Name)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	i := q.findKey(rec.key)
	if i < 0 || q[i].created != rec.created || q[i].Token != r.Token || q[i].Reserved {
		s.fences.doubt()
		s.records.remove(rec, false)
		return driver.AcquireReply{}, errAgain
	}
	if !rec.held {
		q[i].queuedIfShared()
	}
	rec.value = q[i].value
	if rec.session != nil && rec.session.id != q[i].lease {
		rec.session = nil // another process attached to it
	}
	if i >= q.granted() && !r.Queue {
		return s.withdraw(ctx, r, rec, q, i, revision)
	}
	return s.decide(ctx, r, rec, q, i, revision, sent)
}

// withdraw removes a waiter whose request no longer queues.
func (s *Store) withdraw(ctx context.Context, r driver.AcquireRequest, rec record, q queue, i int, revision int64) (driver.AcquireReply, error) {
	if _, err := s.remove(ctx, rec.key, rec.created); err != nil {
		return driver.AcquireReply{}, err
	}
	s.records.remove(rec, true)
	reply := s.busy(q, i, revision)
	reply.Name, reply.Position = r.Name, 0
	return reply, nil
}

// busy describes the queue to the request of a waiter, or of a try whose index is the queue's
// length.
func (s *Store) busy(q queue, i int, revision int64) driver.AcquireReply {
	reply := driver.AcquireReply{Fence: s.fences.upTo(revision), Remaining: driver.WaiterTTL}
	holders := q.holders()
	reply.Position = i - len(holders) + 1
	if len(holders) == 0 {
		return reply
	}
	h := holders[0]
	reply.Holder, reply.Reserved, reply.Remaining = h.Token, h.Reserved, h.ttl()
	switch {
	case h.foreign && h.lease == clientv3.NoLease:
		reply.Remaining = -1
	case h.foreign:
		reply.Remaining = time.Minute // only the server knows; its end is an event
	}
	return reply
}

// try adds an entry only if it holds the name at once. The queue is not empty.
func (s *Store) try(ctx context.Context, r driver.AcquireRequest, rec record, lease *session, sent time.Duration) (driver.AcquireReply, error) {
	for range attempts {
		q, revision, err := s.read(ctx, r.Name)
		if err != nil {
			return driver.AcquireReply{}, err
		}
		if i := q.findKey(rec.key); i >= 0 { // an earlier request added it
			rec.created, rec.session = q[i].created, lease
			s.records.put(rec)
			return driver.AcquireReply{}, errAgain
		}
		joined := append(q, entry{value: rec.value, key: rec.key})
		if joined.granted() < len(joined) {
			reply := s.busy(q, len(q), revision)
			reply.Name, reply.Position = r.Name, 0
			return reply, nil
		}
		// All entries are holders, so none gets the name when another leaves.
		reply, err := s.cli.Txn(ctx).If(absent(s.keys.cancelled(rec.id)), unchangedSince(s.keys.queue(r.Name), revision)).
			Then(clientv3.OpPut(rec.key, rec.value.String(), clientv3.WithLease(lease.id))).Commit()
		if err != nil {
			return driver.AcquireReply{}, s.afterRefusal(ctx, err, lease)
		}
		if reply.Succeeded {
			return s.entered(r, rec, lease, sent, reply.Header.Revision), nil
		}
	}
	return driver.AcquireReply{}, errAgain
}
