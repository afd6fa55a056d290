package etcdstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if err := driver.CheckName(r.Name); err != nil {
		return false, err
	}
	ctx, cancel, err := s.beginTurn(ctx, "release", r.Name, r.Token, r.Until)
	if err != nil {
		return false, err
	}
	defer cancel()
	released, err := s.release(ctx, r)
	if err != nil {
		return false, unavailable("release", r.Name, err)
	}
	return released, nil
}

func (s *Store) release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if rec, ok := s.records.get(r.Name, r.Token); ok && rec.held && !rec.ending && !r.Unreserve && r.Reserve <= 0 {
		return s.end(ctx, rec)
	}
	return again(func() (bool, error) { return s.releaseFound(ctx, r) })
}

// releaseFound releases the entry that a read finds.
func (s *Store) releaseFound(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	rec, found, err := s.findHolder(ctx, r.Name, r.Token)
	switch {
	case err != nil:
		return false, err
	case !found:
		if rec.ending {
			s.forget(rec)
		}
		return false, nil
	case rec.value.Reserved != r.Unreserve && rec.reserves == nil: // otherwise the reply to this release was lost
		return false, nil
	case r.Reserve > 0:
		return s.reserve(ctx, rec, r.Reserve)
	}
	return s.end(ctx, rec)
}

// findHolder reads a token's entry if it holds the name, or reserves it. It returns the entry's
// record, or a record that is not recorded.
func (s *Store) findHolder(ctx context.Context, name, token string) (rec record, found bool, err error) {
	rec, ok := s.records.get(name, token)
	q, _, err := s.read(ctx, name)
	if err != nil {
		return rec, false, err
	}
	i := q.holder(token)
	if i < 0 {
		return rec, false, nil
	}
	e := q[i]
	if !ok || rec.key != e.key || rec.created != 0 && rec.created != e.created {
		rec = record{name: name, token: token, key: e.key}
	}
	rec.read(e)
	rec.session = s.sessionOf(rec, e)
	return rec, true, nil
}

// end deletes an entry, and returns false if it did not exist. The entry cannot be used any more,
// even if the request fails: it may arrive later.
func (s *Store) end(ctx context.Context, rec record) (removed bool, err error) {
	s.records.change(rec, func(now *record) { now.ending, rec.inDoubt = true, now.inDoubt })
	if removed, err = s.remove(ctx, rec); err != nil {
		return false, err
	}
	s.forget(rec)
	return removed, nil
}

// remove deletes an entry. It returns false if the entry does not exist. If a late request can add
// the entry, remove leaves a mark, which that request compares.
func (s *Store) remove(ctx context.Context, rec record) (removed bool, err error) {
	once := func() (bool, error) { return s.removeOnce(ctx, rec) }
	removed, err = again(once)
	if rec.inDoubt && errors.Is(err, rpctypes.ErrNoSpace) { // etcd also refuses late requests
		rec.inDoubt = false
		return again(once)
	}
	return removed, err
}

func (s *Store) removeOnce(ctx context.Context, rec record) (bool, error) {
	var marks *session
	var mark []clientv3.Op
	if rec.inDoubt {
		var err error
		if marks, err = s.sessions.forMarks(ctx); err != nil {
			return false, err
		}
		mark = append(mark, s.markOp(rec, marks))
	}
	var conditions []clientv3.Cmp
	if rec.created != 0 {
		conditions = append(conditions, exists(rec.key, rec.created))
	}
	reply, err := s.cli.Txn(ctx).If(conditions...).Then(append(mark, clientv3.OpDelete(rec.key))...).Else(mark...).Commit()
	if err != nil {
		if marks != nil {
			err = s.afterRefusal(ctx, err, marks)
		}
		return false, err
	}
	return reply.Succeeded && reply.Responses[len(mark)].GetResponseDeleteRange().GetDeleted() > 0, nil
}

// markOp leaves a mark.
func (s *Store) markOp(rec record, marks *session) clientv3.Op {
	return clientv3.OpPut(s.keys.cancelled(rec.request), "", clientv3.WithLease(marks.id))
}

// finish completes the end of an entry, unless it became a reservation.
func (s *Store) finish(ctx context.Context, rec record) error {
	reply, err := s.cli.Get(ctx, rec.key)
	if err != nil {
		return err
	}
	q := readQueue(s.keys.queue(rec.name), reply.Kvs)
	if len(q) > 0 && q[0].created == rec.created && q[0].Reserved {
		s.records.remove(rec)
		return nil
	}
	_, err = s.end(ctx, rec)
	return err
}

// forget removes the record of an entry that ended, and revokes the sessions that it had for itself.
func (s *Store) forget(rec record) {
	last, ok := s.records.remove(rec)
	if !ok {
		return
	}
	for _, own := range []*session{last.session, last.spare, last.reserves} {
		s.leave(own)
	}
}

// reserve ends a lease, but keeps its entry, which excludes others for a time. The entry gets its
// own session, so it outlasts this process. While the process runs, it ends the entry on time: etcd
// counts in seconds.
func (s *Store) reserve(ctx context.Context, rec record, d time.Duration) (bool, error) {
	sent := s.clock.Check()
	own := rec.reserves
	if own == nil || !own.lasts(sent+d) {
		var err error
		if own, err = s.sessions.grant(ctx, max(d, minTTL)); err != nil {
			return false, err
		}
	}
	s.records.change(rec, func(now *record) { now.ending, now.reserves = true, own })
	v := rec.value
	v.Reserved, v.Queued, v.TTL = true, false, milliseconds(d)
	if err := s.move(ctx, &rec, v, own); err != nil {
		return false, err
	}
	rec.held, rec.ending, rec.reserves, rec.expires = false, false, nil, sent+d
	s.reserved(rec)
	return true, nil
}

// reserved records a reservation.
func (s *Store) reserved(rec record) {
	var left *session
	if rec.number == 0 {
		s.records.add(&rec, "")
	}
	s.records.change(rec, func(now *record) {
		now.endWait(now.wait)
		if now.session != rec.session {
			left = now.session
		}
		*now = rec
	})
	s.leave(left)
	s.sweeper.wakeAt(rec.expires)
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	if err := driver.CheckName(r.Name); err != nil {
		return err
	}
	ctx, cancel, err := s.begin(ctx, "cancel", r.Name, r.Until)
	if err != nil {
		return err
	}
	defer cancel()
	for _, name := range r.Names() {
		if err := s.cancel(ctx, name, r.Token); err != nil {
			return unavailable("cancel", name, err)
		}
	}
	return nil
}

// cancel removes a token's entry, unless it is a reservation.
func (s *Store) cancel(ctx context.Context, name, token string) error {
	rec, ok := s.records.get(name, token)
	if ok && rec.value.Reserved {
		return nil
	}
	if !ok {
		q, _, err := s.read(ctx, name)
		if err != nil {
			return err
		}
		i := q.find(token)
		if i < 0 || q[i].Reserved {
			return nil
		}
		rec = record{name: name, token: token, key: q[i].key, created: q[i].created}
	}
	if rec.reserves != nil { // a release with a reservation got no answer
		return s.finish(ctx, rec)
	}
	_, err := s.end(ctx, rec)
	return err
}
