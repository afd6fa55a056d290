package etcdstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// decide answers a request whose entry is in the queue.
func (s *Store) decide(ctx context.Context, r driver.AcquireRequest, rec record, q queue, i int, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	rec.read(q[i])
	rec.session = s.sessionOf(rec, q[i])
	if i < q.granted() {
		fence, err := s.hold(ctx, rec, i, revision, leaseTTL(r), sent)
		return driver.AcquireReply{Held: err == nil, Fence: fence}, err
	}
	if err := s.waitOnAll(ctx, r, []record{rec}, sent); err != nil {
		return driver.AcquireReply{}, err
	}
	reply := s.busy(ctx, r.Name, q, i, revision)
	reply.Ticket = uint64(rec.created)
	s.watchGrant(r, rec, q[i-1])
	return reply, nil
}

// read copies what an entry says.
func (rec *record) read(e entry) {
	rec.value, rec.created, rec.changed = e.value, e.created, e.changed
}

// fenceOf returns the fence that a record's entry says, or zero.
func (s *Store) fenceOf(rec record) uint64 {
	return s.fences.of(entry{value: rec.value, created: rec.created, changed: rec.changed})
}

// hold makes a holder's entry last for a TTL, and returns its fence. i is its index in the queue,
// which was read at a revision.
func (s *Store) hold(ctx context.Context, rec record, i int, revision int64, ttl, sent time.Duration) (uint64, error) {
	fence := s.fenceOf(rec)
	switch {
	case rec.held:
		fence = max(fence, rec.fence)
	case fence == 0:
		fence = s.fences.seen(revision, i)
	}
	if s.stays(rec, ttl) {
		err := s.sessions.keep(ctx, rec.session, ttl)
		if err == nil {
			err = s.extended(rec, ttl, fence, sent)
		}
		return fence, orAgain(err)
	}
	return fence, s.rebind(ctx, rec, ttl, fence, sent)
}

// stays reports whether an entry can stay on its session for a TTL. Other processes read the entry's
// longest TTL in its value, so a longer TTL needs a write.
func (s *Store) stays(rec record, ttl time.Duration) bool {
	return rec.session != nil && !rec.value.Queued && ttl <= rec.value.ttl() && rec.session.suits(ttl, s.clock.Check())
}

// orAgain returns errAgain for the end of a session.
func orAgain(err error) error {
	if errors.Is(err, errEnded) {
		return errAgain
	}
	return err
}

// rebind moves a holder's entry to a session with a TTL.
func (s *Store) rebind(ctx context.Context, rec record, ttl time.Duration, fence uint64, sent time.Duration) error {
	ttl = lasting(rec, ttl, sent)
	to, err := s.sessionFor(ctx, &rec, rec.value.Client, ttl)
	if err != nil {
		return err
	}
	v := rec.value
	if v.Queued {
		v.Since = time.Now().UnixMilli()
	}
	v.TTL, v.Fence, v.Queued, v.Resized = milliseconds(ttl), fence, false, false
	if err := s.move(ctx, &rec, v, to); err != nil {
		return err
	}
	// Another process may have renewed the entry until it moved.
	if err := s.sessions.keep(ctx, to, ttl); err != nil {
		return orAgain(err)
	}
	return s.extended(rec, ttl, fence, sent)
}

// lasting returns the TTL for a move, which never shortens a lease. If another process renewed the
// lease, only the entry says its TTL.
func lasting(rec record, ttl, now time.Duration) time.Duration {
	switch {
	case rec.value.Queued:
		return ttl
	case rec.session != nil:
		return max(ttl, rec.expires-now)
	default:
		return max(ttl, rec.value.ttl())
	}
}

// sessionOf returns the session of an entry, or nil if it is another process's.
func (s *Store) sessionOf(rec record, e entry) *session {
	for _, on := range []*session{rec.session, rec.spare} {
		if on != nil && on.id == e.lease {
			return on
		}
	}
	return s.sessions.find(e.lease)
}

// sessionFor is sessionForAll for a single entry.
func (s *Store) sessionFor(ctx context.Context, rec *record, client string, ttl time.Duration) (*session, error) {
	recs := []record{*rec}
	to, err := s.sessionForAll(ctx, recs, client, ttl)
	*rec = recs[0]
	return to, err
}

func (s *Store) keepSpare(rec *record, own *session) {
	rec.spare = own
	if !s.records.change(*rec, func(now *record) { now.spare = own }) {
		s.leave(own)
	}
}

// leave revokes a session that a single entry had for itself, after the entry moved or ended.
func (s *Store) leave(old *session) {
	if old == nil || old.shared || !old.leave() {
		return
	}
	go func() {
		for pause := firstPause; pause < time.Minute; pause *= 2 {
			ctx, cancel := context.WithTimeout(context.Background(), driver.OperationTimeout)
			err := s.sessions.revoke(ctx, old)
			cancel()
			if err == nil || s.cli.Ctx().Err() != nil {
				return
			}
			sleep(s.cli.Ctx(), pause)
		}
	}()
}

// extended records that a holder's entry lasts for a TTL on the record's session. It returns
// errAgain if the entry moved meanwhile, or its end was requested.
func (s *Store) extended(rec record, ttl time.Duration, fence uint64, sent time.Duration) error {
	until := sent + ttl
	ok := s.recordState(rec, func(now *record) {
		if now.held {
			until = max(until, now.expires)
		}
		now.held, now.fence, now.expires = true, max(fence, now.fence), until
		now.endWait(now.wait)
	})
	if !ok {
		return errAgain
	}
	s.sweeper.wakeAt(until)
	return nil
}

// recordState records the state of an entry after an answer from etcd. It returns false if the record
// knows a later state.
func (s *Store) recordState(rec record, change func(*record)) (ok bool) {
	var left *session
	known := s.records.update(rec, func(now *record) {
		if ok = now.changed <= rec.changed; !ok {
			return
		}
		if now.session != rec.session {
			left = now.session
		}
		now.value, now.created, now.changed, now.session, now.inDoubt = rec.value, rec.created, rec.changed, rec.session, rec.inDoubt
		if now.spare == rec.session {
			now.spare = nil
		}
		change(now)
	})
	s.leave(left)
	return known && ok
}
