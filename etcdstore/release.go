package etcdstore

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
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
	rec, ok := s.records.get(r.Name, r.Token)
	if !ok || !rec.held || r.Unreserve {
		found, e, err := s.holder(ctx, r.Name, r.Token)
		if err != nil || !found || e.Reserved != r.Unreserve {
			return false, err
		}
		if !ok || rec.key != e.key {
			rec = record{name: r.Name, token: r.Token, key: e.key, created: e.created}
		}
		rec.value = e.value
	}
	if r.Reserve > 0 {
		return s.reserve(ctx, rec, r.Reserve)
	}
	removed, err := s.remove(ctx, rec.key, rec.created)
	if err != nil {
		return false, err
	}
	s.records.remove(rec, true)
	s.leave(rec.session)
	return removed, nil
}

// holder returns a token's entry if it holds the name, or reserves it.
func (s *Store) holder(ctx context.Context, name, token string) (bool, entry, error) {
	q, _, err := s.read(ctx, name)
	if err != nil {
		return false, entry{}, err
	}
	i := q.find(token)
	if i < 0 || i >= q.granted() || q[i].pending() {
		return false, entry{}, nil
	}
	return true, q[i], nil
}

// reserve ends a lease, but keeps its entry, which excludes others for a time. The entry gets its
// own session, so it outlasts this process. While the process runs, it ends the entry on time: etcd
// counts in seconds.
func (s *Store) reserve(ctx context.Context, rec record, d time.Duration) (bool, error) {
	sent := s.clock.Check()
	own, err := s.sessions.grant(ctx, max(d, minTTL))
	if err != nil {
		return false, err
	}
	v := rec.value
	v.Reserved, v.Queued, v.TTL = true, false, d.Milliseconds()
	revision, err := s.move(ctx, rec.key, rec.created, v, own)
	if err != nil {
		return false, err
	}
	s.leave(rec.session)
	if revision == 0 {
		s.leave(own)
		s.records.remove(rec, false)
		return false, nil
	}
	rec.value, rec.session, rec.held, rec.expires = v, own, false, sent+d
	s.records.put(rec)
	s.sweeper.wakeAt(rec.expires)
	return true, nil
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
		if err := s.cancel(ctx, name, r.Token, r.Client); err != nil {
			return unavailable("cancel", name, err)
		}
	}
	return nil
}

// cancel removes a token's entry, unless it is a reservation.
func (s *Store) cancel(ctx context.Context, name, token, client string) error {
	rec, ok := s.records.get(name, token)
	switch {
	case ok && rec.value.Reserved:
		return nil
	case ok && rec.created == 0:
		return s.cancelUnknown(ctx, rec, client)
	case !ok:
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
	if _, err := s.remove(ctx, rec.key, rec.created); err != nil {
		return err
	}
	s.records.remove(rec, true)
	s.leave(rec.session)
	return nil
}

// cancelUnknown cancels a request that may still be on its way. It leaves a mark, which the
// request's transaction compares.
func (s *Store) cancelUnknown(ctx context.Context, rec record, client string) error {
	marks, err := s.sessions.forCancelled(ctx, client)
	if err != nil {
		return err
	}
	_, err = s.cli.Txn(ctx).Then(
		clientv3.OpPut(s.keys.cancelled(rec.id), "", clientv3.WithLease(marks.id)),
		clientv3.OpDelete(rec.key),
	).Commit()
	if err != nil {
		return s.afterRefusal(ctx, err, marks)
	}
	s.records.remove(rec, false)
	return nil
}
