package etcdstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// acquireAll acquires several names. The entries in all queues are created in a single revision, so
// they have the same place among all requests: two requests never wait for each other.
func (s *Store) acquireAll(ctx context.Context, r driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	for range attempts {
		if recs := s.recordsOf(r); recs == nil {
			reply, err = s.enterAll(ctx, r, s.newRecords(r))
		} else {
			reply, err = s.acquireAllAgain(ctx, r, recs)
		}
		if !errors.Is(err, errAgain) {
			break
		}
	}
	return reply, err
}

// recordsOf returns the records for all names in a request, or nil if there are none. If some are
// missing, their keys are empty.
func (s *Store) recordsOf(r driver.AcquireRequest) (recs []record) {
	found := false
	for _, name := range r.Names() {
		rec, ok := s.records.get(name, r.Token)
		found = found || ok
		recs = append(recs, rec)
	}
	if !found {
		return nil
	}
	return recs
}

func (s *Store) newRecords(r driver.AcquireRequest) (recs []record) {
	for _, name := range r.Names() {
		rec := record{name: name, token: r.Token, id: s.records.newID(), value: newValue(r)}
		rec.key = s.keys.queue(name) + rec.id
		recs = append(recs, rec)
	}
	return recs
}

// enterAll adds the entries for all names.
func (s *Store) enterAll(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	lease, err := s.sessions.forAttempt(ctx, r.Client, leaseTTL(r), recs[0].session)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	lease.setEntries(len(recs))
	reply, err := s.enterAllOn(ctx, r, recs, lease, sent)
	s.leaveUnused(lease, err, recs...)
	return reply, err
}

// enterAllOn is enterAll with a session for the lease.
func (s *Store) enterAllOn(ctx context.Context, r driver.AcquireRequest, recs []record, lease *session, sent time.Duration) (driver.AcquireReply, error) {
	conditions := []clientv3.Cmp{absent(s.keys.cancelled(recs[0].id))}
	var puts []clientv3.Op
	for i := range recs {
		recs[i].session, recs[i].expires = lease, sent+leaseTTL(r)
		s.records.put(recs[i])
		conditions = append(conditions, noneWithPrefix(s.keys.queue(recs[i].name)))
		puts = append(puts, clientv3.OpPut(recs[i].key, recs[i].value.String(), clientv3.WithLease(lease.id)))
	}
	s.sweeper.wakeAt(recs[0].expires)
	reply, err := s.cli.Txn(ctx).If(conditions...).Then(puts...).Commit()
	switch {
	case err != nil:
		if hasNoEffect(err) {
			s.forget(recs, true)
		}
		return driver.AcquireReply{}, s.afterRefusal(ctx, err, lease)
	case reply.Succeeded:
		var held driver.AcquireReply
		for _, rec := range recs {
			held = s.entered(r, rec, lease, sent, reply.Header.Revision)
		}
		return held, nil
	case !r.Queue:
		return s.refuseAll(ctx, r, recs)
	}
	if err := s.joinAll(ctx, r, recs); err != nil {
		return driver.AcquireReply{}, err
	}
	return s.acquireAllAgain(ctx, r, recs)
}

// forget removes records.
func (s *Store) forget(recs []record, reusable bool) {
	for _, rec := range recs {
		s.records.remove(rec, reusable)
	}
}

// refuseAll answers a try for several names, one of which is not free.
func (s *Store) refuseAll(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	queues, revision, err := s.readAll(ctx, r.Names())
	if err != nil {
		return driver.AcquireReply{}, err
	}
	for i, q := range queues {
		switch j := q.findKey(recs[i].key); {
		case j >= 0: // an earlier request added it
			return s.acquireAllAgain(ctx, r, recs)
		case len(q) > 0:
			s.forget(recs, true)
			reply := s.busy(q, len(q), revision)
			reply.Name, reply.Position = recs[i].name, 0
			return reply, nil
		}
	}
	return driver.AcquireReply{}, errAgain
}

// joinAll adds the entries at the ends of their queues.
func (s *Store) joinAll(ctx context.Context, r driver.AcquireRequest, recs []record) error {
	waits, err := s.sessions.forWaiters(ctx, r.Client)
	if err != nil {
		return err
	}
	conditions := []clientv3.Cmp{absent(s.keys.cancelled(recs[0].id))}
	var puts []clientv3.Op
	for i := range recs {
		recs[i].value.Queued = true
		conditions = append(conditions, absent(recs[i].key))
		puts = append(puts, clientv3.OpPut(recs[i].key, recs[i].value.String(), clientv3.WithLease(waits.id)))
	}
	_, err = s.cli.Txn(ctx).If(conditions...).Then(puts...).Commit()
	return s.afterRefusal(ctx, err, waits)
}

// acquireAllAgain answers a request whose entries may exist.
func (s *Store) acquireAllAgain(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	names := r.Names()
	queues, revision, err := s.readAll(ctx, names)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	entries, missing := make([]entry, len(recs)), 0
	places := make([]int, len(recs))
	for i, q := range queues {
		places[i] = q.find(r.Token)
		if places[i] < 0 || q[places[i]].Reserved {
			missing++
			continue
		}
		entries[i] = q[places[i]]
	}
	switch {
	case missing == len(recs) && recs[0].created == 0 && recs[0].key != "":
		return s.enterAllAgain(ctx, r, recs)
	case missing > 0:
		return driver.AcquireReply{}, s.dropAll(ctx, recs, entries)
	}
	for i, e := range entries {
		rec := record{name: names[i], token: r.Token, key: e.key, id: s.idOf(e.key), created: e.created, value: e.value, held: recs[i].held, fence: recs[i].fence, expires: recs[i].expires}
		if old := recs[i]; old.key == e.key {
			rec.stopWait, rec.session = old.stopWait, old.session
		}
		if rec.session == nil || rec.session.id != e.lease {
			rec.session = s.sessions.find(r.Client, e.lease)
		}
		recs[i] = rec
		s.records.put(rec)
	}
	return s.decideAll(ctx, r, recs, queues, entries, places, revision, sent)
}

// enterAllAgain sends a request again whose reply was lost, unless it was cancelled.
func (s *Store) enterAllAgain(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	mark, err := s.cli.Get(ctx, s.keys.cancelled(recs[0].id), clientv3.WithCountOnly())
	if err != nil {
		return driver.AcquireReply{}, err
	}
	if mark.Count > 0 {
		return driver.AcquireReply{}, errCancelled
	}
	for i := range recs {
		recs[i].value.Queued = false
	}
	return s.enterAll(ctx, r, recs)
}

// dropAll ends a request that lost some of its entries.
func (s *Store) dropAll(ctx context.Context, recs []record, entries []entry) error {
	for i, e := range entries {
		if e.key == "" {
			continue
		}
		if _, err := s.remove(ctx, e.key, e.created); err != nil {
			return err
		}
		s.records.remove(recs[i], false)
	}
	for _, rec := range recs {
		s.records.remove(rec, false)
	}
	return errAgain
}

// decideAll answers a request whose entries are in the queues.
func (s *Store) decideAll(ctx context.Context, r driver.AcquireRequest, recs []record, queues []queue, entries []entry, places []int, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	blocked, furthest := -1, 0
	for i, place := range places {
		if place > 0 && blocked < 0 {
			blocked = i
		}
		furthest = max(furthest, place)
	}
	switch {
	case blocked < 0:
		return s.holdAll(ctx, r, recs, entries, revision, sent)
	case !r.Queue:
		reply := s.busy(queues[blocked], places[blocked], revision)
		reply.Name, reply.Position = recs[blocked].name, 0
		for i, e := range entries {
			if _, err := s.remove(ctx, e.key, e.created); err != nil {
				return driver.AcquireReply{}, err
			}
			s.records.remove(recs[i], true)
		}
		return reply, nil
	}
	reply := s.busy(queues[blocked], places[blocked], revision)
	reply.Name, reply.Ticket = recs[blocked].name, uint64(recs[blocked].created)
	for i := range recs {
		if err := s.waitOn(ctx, r, &recs[i], sent); err != nil {
			return driver.AcquireReply{}, err
		}
		if places[i] > 0 {
			holders := len(queues[i].holders())
			reply.Position = max(reply.Position, places[i]-holders+1)
			s.watchGrant(r, recs[i], queues[i][places[i]-1])
		}
	}
	return reply, nil
}

// holdAll answers a request whose entries are the first in all queues.
func (s *Store) holdAll(ctx context.Context, r driver.AcquireRequest, recs []record, entries []entry, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	fence := s.fences.seen(revision, 0)
	if !entries[0].Queued {
		fence = s.fences.of(entries[0])
	}
	for i := range recs {
		if err := s.lengthen(ctx, &recs[i], entries[i], leaseTTL(r), fence, sent); err != nil {
			return driver.AcquireReply{}, err
		}
	}
	return driver.AcquireReply{Held: true, Fence: fence}, nil
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
