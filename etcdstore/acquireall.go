package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// acquireAll acquires several names. The entries in all queues are created in a single revision, so
// they have the same place among all requests: two requests never wait for each other.
func (s *Store) acquireAll(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	recs, known := s.recordsOf(r)
	ending := slices.ContainsFunc(recs, func(rec record) bool { return rec.ending })
	switch {
	case known == 0:
		return s.acquireAllFirst(ctx, r)
	case known < len(recs) || ending: // the token lost some of the names
		return driver.AcquireReply{}, cmp.Or(s.endAll(ctx, recs), errAgain)
	case recs[0].created == 0:
		return s.enterAll(ctx, r, recs) // the reply to an earlier request was lost
	default:
		return s.acquireAllAgain(ctx, r, recs)
	}
}

// recordsOf returns the records for all names in a request, and how many there are. The others have
// no key.
func (s *Store) recordsOf(r driver.AcquireRequest) (recs []record, known int) {
	for _, name := range r.Names() {
		rec, ok := s.records.get(name, r.Token)
		if ok {
			known++
		}
		recs = append(recs, rec)
	}
	return recs, known
}

// endAll deletes entries.
func (s *Store) endAll(ctx context.Context, recs []record) error {
	for _, rec := range recs {
		if rec.key == "" {
			continue
		}
		if err := s.finish(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// acquireAllFirst sends the first request of a token.
func (s *Store) acquireAllFirst(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if c, ok := ownertoken.ClientOf(r.Token); !ok || c.ID != r.Client {
		adopted := false
		for _, name := range r.Names() {
			found, err := s.adopt(ctx, name, r.Token)
			if err != nil {
				return driver.AcquireReply{}, err
			}
			adopted = adopted || found
		}
		if adopted {
			return driver.AcquireReply{}, errAgain
		}
	}
	var recs []record
	for _, name := range r.Names() {
		rec := record{name: name, token: r.Token, value: newValue(r)}
		if !s.records.add(&rec, s.keys.queue(name)) {
			s.forgetAll(recs)
			return driver.AcquireReply{}, errAgain // another call did the same
		}
		recs = append(recs, rec)
	}
	return s.enterAll(ctx, r, recs)
}

// forgetAll removes the records of entries that no request can add.
func (s *Store) forgetAll(recs []record) {
	for _, rec := range recs {
		s.forgetUnsent(rec)
	}
}

// enterAll adds the entries for all names.
func (s *Store) enterAll(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	lease, err := s.sessionForAll(ctx, recs, r.Client, leaseTTL(r))
	if err != nil {
		return driver.AcquireReply{}, s.noneAdded(ctx, recs, err)
	}
	for _, rec := range recs {
		if !s.mayAdd(rec, sent+leaseTTL(r)) {
			return driver.AcquireReply{}, errAgain
		}
	}
	reply, err := s.createAll(ctx, r, recs, lease, sent, noneWithPrefix)
	switch {
	case err != nil || reply.Held:
		return reply, err
	case !r.Queue:
		return s.tryAll(ctx, r, recs, lease, sent)
	}
	return s.joinAll(ctx, r, recs)
}

// createAll adds the entries as holders, if a condition holds for the prefix of each queue.
func (s *Store) createAll(ctx context.Context, r driver.AcquireRequest, recs []record, lease *session, sent time.Duration, free func(prefix string) clientv3.Cmp) (driver.AcquireReply, error) {
	conditions := []clientv3.Cmp{s.notCancelled(recs[0])}
	var puts []clientv3.Op
	for _, rec := range recs {
		conditions = append(conditions, free(s.keys.queue(rec.name)))
		puts = append(puts, clientv3.OpPut(rec.key, rec.value.String(), clientv3.WithLease(lease.id)))
	}
	reply, err := s.cli.Txn(ctx).If(conditions...).Then(puts...).Commit()
	if err != nil {
		return driver.AcquireReply{}, s.noneAdded(ctx, recs, err, lease)
	}
	if !reply.Succeeded {
		return driver.AcquireReply{}, nil
	}
	return s.enteredAll(r, recs, lease, sent, reply.Header.Revision)
}

// noneAdded removes the records of entries that were not added, unless an earlier request had no
// answer. It returns errAgain if etcd refused the request because a session ended.
func (s *Store) noneAdded(ctx context.Context, recs []record, err error, used ...*session) error {
	if hasNoEffect(err) && !recs[0].inDoubt {
		s.forgetAll(recs)
	}
	return s.afterRefusal(ctx, err, used...)
}

// enteredAll records a holder of all names.
func (s *Store) enteredAll(r driver.AcquireRequest, recs []record, on *session, sent time.Duration, revision int64) (reply driver.AcquireReply, err error) {
	for _, rec := range recs {
		if reply, err = s.entered(r, rec, on, sent, revision); err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// tryAll answers a try for several names, after a request that found keys with their prefixes.
func (s *Store) tryAll(ctx context.Context, r driver.AcquireRequest, recs []record, lease *session, sent time.Duration) (driver.AcquireReply, error) {
	queues, revision, err := s.readAll(ctx, r.Names())
	if err != nil {
		return driver.AcquireReply{}, s.noneAdded(ctx, recs, err)
	}
	for i, q := range queues {
		switch j := q.findKey(recs[i].key); {
		case j >= 0: // an earlier request added it
			return s.acquireAllAgain(ctx, r, recs)
		case len(q) > 0:
			if !recs[0].inDoubt {
				s.forgetAll(recs)
			}
			return s.refuse(ctx, recs[i].name, q, len(q), revision), nil
		}
	}
	// The keys belong to locks of another library, in folders below the queues.
	reply, err := s.createAll(ctx, r, recs, lease, sent, func(prefix string) clientv3.Cmp { return unchangedSince(prefix, revision) })
	if err == nil && !reply.Held {
		err = errAgain
	}
	return reply, err
}

// joinAll adds the entries at the ends of their queues.
func (s *Store) joinAll(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	waits, err := s.sessions.forWaiters(ctx, r.Client)
	if err != nil {
		return driver.AcquireReply{}, s.noneAdded(ctx, recs, err)
	}
	conditions := []clientv3.Cmp{s.notCancelled(recs[0])}
	var puts []clientv3.Op
	for _, rec := range recs {
		rec.value.Queued = true
		conditions = append(conditions, absent(rec.key))
		puts = append(puts, clientv3.OpPut(rec.key, rec.value.String(), clientv3.WithLease(waits.id)))
	}
	if _, err = s.cli.Txn(ctx).If(conditions...).Then(puts...).Commit(); err != nil {
		return driver.AcquireReply{}, s.noneAdded(ctx, recs, err, waits)
	}
	return s.acquireAllAgain(ctx, r, recs)
}

// acquireAllAgain answers a request whose entries should exist.
func (s *Store) acquireAllAgain(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	queues, revision, err := s.readAll(ctx, r.Names())
	if err != nil {
		return driver.AcquireReply{}, err
	}
	places, missing := make([]int, len(recs)), 0
	for i, q := range queues {
		at := q.findKey(recs[i].key)
		if at < 0 || recs[i].created != 0 && q[at].created != recs[i].created || q[at].Token != r.Token || q[at].Reserved {
			missing++
			continue
		}
		places[i] = at
		recs[i].read(q[at])
		recs[i].session = s.sessionOf(recs[i], q[at])
	}
	switch {
	case missing == len(recs) && recs[0].created == 0:
		return driver.AcquireReply{}, errCancelled
	case missing > 0: // the request releases the others
		return driver.AcquireReply{}, cmp.Or(s.endAll(ctx, recs), errAgain)
	}
	return s.decideAll(ctx, r, recs, queues, places, revision, sent)
}

// decideAll answers a request whose entries are in the queues.
func (s *Store) decideAll(ctx context.Context, r driver.AcquireRequest, recs []record, queues []queue, places []int, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	blocked := slices.IndexFunc(places, func(place int) bool { return place > 0 })
	if blocked < 0 {
		return s.holdAll(ctx, r, recs, revision, sent)
	}
	reply := s.refuse(ctx, recs[blocked].name, queues[blocked], places[blocked], revision)
	if !r.Queue {
		return reply, s.endAll(ctx, recs)
	}
	if err := s.waitOnAll(ctx, r, recs, sent); err != nil {
		return driver.AcquireReply{}, err
	}
	reply.Ticket = uint64(recs[blocked].created)
	for i, place := range places {
		if place > 0 {
			reply.Position = max(reply.Position, place-len(queues[i].holders())+1)
			s.watchGrant(r, recs[i], queues[i][place-1])
		}
	}
	return reply, nil
}

// holdAll answers a request whose entries are the first in all queues.
func (s *Store) holdAll(ctx context.Context, r driver.AcquireRequest, recs []record, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	fence, ttl, stay := s.fences.seen(revision, 0), leaseTTL(r), true
	if !recs[0].value.Queued {
		fence = s.fenceOf(recs[0])
	}
	for _, rec := range recs {
		stay = stay && s.stays(rec, ttl)
		ttl = max(ttl, lasting(rec, ttl, sent))
	}
	if !stay {
		if err := s.rebindAll(ctx, r, recs, ttl, fence); err != nil {
			return driver.AcquireReply{}, err
		}
	}
	for _, rec := range recs {
		err := s.sessions.keep(ctx, rec.session, ttl)
		if err == nil {
			err = s.extended(rec, ttl, fence, sent)
		}
		if err != nil {
			return driver.AcquireReply{}, orAgain(err)
		}
	}
	return driver.AcquireReply{Held: true, Fence: fence}, nil
}

// rebindAll moves the entries to a session with a TTL.
func (s *Store) rebindAll(ctx context.Context, r driver.AcquireRequest, recs []record, ttl time.Duration, fence uint64) error {
	to, err := s.sessionForAll(ctx, recs, r.Client, ttl)
	if err != nil {
		return err
	}
	return s.moveAll(ctx, recs, to, func(v *value) {
		v.Client, v.TTL, v.Fence, v.Queued, v.Resized = r.Client, milliseconds(ttl), fence, false, false
	})
}

// waitOnAll binds the entries to their client's session for waiters, and keeps the session.
func (s *Store) waitOnAll(ctx context.Context, r driver.AcquireRequest, recs []record, sent time.Duration) error {
	waits, err := s.sessions.forWaiters(ctx, r.Client)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(recs, func(rec record) bool { return rec.session != waits }) {
		if err := s.moveAll(ctx, recs, waits, func(v *value) { v.Queued = true }); err != nil {
			return err
		}
	}
	for _, rec := range recs {
		if !s.recordState(rec, func(now *record) { now.expires = sent + waiterTTL }) {
			return errAgain
		}
	}
	s.sweeper.wakeAt(sent + waiterTTL)
	return nil
}

// moveAll changes the values of entries, and binds them to a session. Their places in the queues stay
// the same. It returns errAgain if an entry changed or ended since its record was made, so a late move
// never undoes another.
func (s *Store) moveAll(ctx context.Context, recs []record, to *session, change func(*value)) error {
	var conditions []clientv3.Cmp
	var puts []clientv3.Op
	for i := range recs {
		change(&recs[i].value)
		conditions = append(conditions, unchanged(recs[i].key, recs[i].changed))
		puts = append(puts, clientv3.OpPut(recs[i].key, recs[i].value.String(), clientv3.WithLease(to.id)))
	}
	reply, err := s.cli.Txn(ctx).If(conditions...).Then(puts...).Commit()
	switch {
	case err != nil:
		return s.afterRefusal(ctx, err, to)
	case !reply.Succeeded:
		return errAgain
	}
	for i := range recs {
		recs[i].session, recs[i].changed = to, reply.Header.Revision
	}
	return nil
}

// sessionForAll returns a session for a TTL, which the entries share. Their records keep a session that
// is for these entries alone, so that it is revoked in the end.
func (s *Store) sessionForAll(ctx context.Context, recs []record, client string, ttl time.Duration) (*session, error) {
	spare := recs[0].spare
	if spare != nil && spare.suits(ttl, s.clock.Check()) && !slices.ContainsFunc(recs, func(rec record) bool { return rec.spare != spare }) {
		if err := s.sessions.keep(ctx, spare, ttl); !errors.Is(err, errEnded) {
			return spare, err
		}
	}
	to, err := s.sessions.forTTL(ctx, client, ttl)
	if err == nil && !to.shared {
		to.entries = len(recs)
		for i := range recs {
			s.keepSpare(&recs[i], to)
		}
	}
	return to, err
}

// readAll returns the queues of names at one revision.
func (s *Store) readAll(ctx context.Context, names []string) ([]queue, int64, error) {
	gets := make([]clientv3.Op, len(names))
	for i, name := range names {
		gets[i] = clientv3.OpGet(s.keys.queue(name), clientv3.WithPrefix())
	}
	reply, err := twice(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.cli.Txn(ctx).Then(gets...).Commit()
	})
	if err != nil {
		return nil, 0, err
	}
	queues := make([]queue, len(names))
	for i, name := range names {
		queues[i] = readQueue(s.keys.queue(name), reply.Responses[i].GetResponseRange().GetKvs())
	}
	return queues, reply.Header.Revision, nil
}
