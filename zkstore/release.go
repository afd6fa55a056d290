package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
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
		if rec.session != nil && rec.entry.exclusive() {
			return s.leave(ctx, rec)
		}
		return s.end(ctx, rec)
	}
	return again(func() (bool, error) { return s.releaseFound(ctx, r) })
}

// releaseFound releases the entry that a read finds.
func (s *Store) releaseFound(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	rec, found, err := s.findOwn(ctx, r.Name, r.Token)
	switch {
	case err != nil:
		return false, err
	case (!found || !rec.held && !rec.entry.reserved) && rec.ending:
		return false, s.finish(ctx, rec)
	case !found || !rec.held && !rec.entry.reserved:
		return false, nil
	case rec.entry.reserved && r.Reserve > 0: // the reply to this release was lost
		return true, nil
	case rec.entry.reserved != r.Unreserve:
		return false, nil
	case r.Reserve > 0:
		return s.reserve(ctx, rec, r.Reserve)
	}
	return s.end(ctx, rec)
}

// findOwn is find, but returns this process's record of the entry if there is one.
func (s *Store) findOwn(ctx context.Context, name, token string) (record, bool, error) {
	own, known := s.records.get(name, token)
	rec, found, err := s.find(ctx, name, token)
	if err != nil || !known {
		return rec, found, err
	}
	if !found || own.entry.name != rec.entry.name {
		return own, found && s.replace(&own, rec), nil
	}
	own.value, own.held = rec.value, rec.held && !rec.entry.reserved
	return own, true, nil
}

// replace records that an entry moved: another process did it, or the answer to a move was lost.
func (s *Store) replace(own *record, found record) bool {
	found.number, found.ending = own.number, own.ending
	found.session = s.sessions.find(found.owner)
	if found.session != nil && !found.session.use(s.keys.size(own.name)) {
		found.session = nil
	}
	var left *session
	ok := s.records.change(*own, func(now *record) {
		left = now.session
		found.wait = now.wait
		if !found.entry.persistent { // of a persistent entry, the leader's clock decides
			found.expires = now.expires
		}
		*now = found
	})
	if !ok { // the record ended
		left, found.session = found.session, nil
	}
	left.leave(s.keys.size(own.name))
	*own = found
	return ok
}

// end deletes an entry, and returns false if it did not exist. The entry cannot be used any more,
// even if the request fails: it may arrive later.
func (s *Store) end(ctx context.Context, rec record) (removed bool, err error) {
	s.records.change(rec, func(now *record) { now.ending, rec.late = true, now.late })
	if removed, err = s.remove(ctx, rec); err != nil {
		return false, err
	}
	s.forget(rec)
	return removed, nil
}

// remove deletes an entry. It returns false if the entry does not exist.
func (s *Store) remove(ctx context.Context, rec record) (removed bool, err error) {
	if rec.entry.name == "" {
		e, found, err := s.locate(ctx, rec)
		if err != nil || !found {
			return false, err
		}
		rec.entry = e
	}
	l, err := s.linkOf(ctx, rec)
	if err != nil {
		return false, err
	}
	unanswered := false
	for {
		removed, err := l.remove(ctx, s.keys.entry(rec.name, rec.entry.name), -1)
		switch {
		case isBroken(err): // the session's requests take effect in their order
			unanswered = true
		case errors.Is(err, errEnded) && rec.session != nil: // and the entry with it
			return false, nil
		case err != nil || removed:
			return removed, err
		default:
			moved, err := s.removeMoved(ctx, rec)
			return moved || unanswered && err == nil, err
		}
	}
}

// removeMoved deletes an entry that is not in its znode: it ended, or it moved.
func (s *Store) removeMoved(ctx context.Context, rec record) (bool, error) {
	found, ok, err := s.find(ctx, rec.name, rec.token)
	if err != nil || !ok || found.entry.seq != rec.entry.seq || found.entry.reserved {
		return false, err
	}
	l, err := s.sessions.get(ctx)
	if err != nil {
		return false, err
	}
	return l.remove(ctx, s.keys.entry(rec.name, found.entry.name), -1)
}

// finish completes the end of an entry, unless it became a reservation.
func (s *Store) finish(ctx context.Context, rec record) error {
	if rec.entry.name != "" {
		found, ok, err := s.find(ctx, rec.name, rec.token)
		switch {
		case err != nil:
			return err
		case !ok || found.entry.reserved:
			s.forget(rec)
			return nil
		}
	}
	_, err := s.end(ctx, rec)
	return err
}

// reserve ends a lease, but keeps its place: a persistent entry excludes others for a time. While
// this process runs, it ends the entry on time.
func (s *Store) reserve(ctx context.Context, rec record, d time.Duration) (bool, error) {
	sent := s.clock.Check()
	if rec.number == 0 && !s.records.add(&rec) {
		return false, errAgain
	}
	err := s.move(ctx, &rec, nil, func(n *node, v *value) { n.reserved, v.TTL = true, milliseconds(d) })
	if err != nil {
		return false, err
	}
	s.records.change(rec, func(now *record) {
		now.endWait(now.wait)
		now.held, now.ending, now.expires = false, false, sent+d
	})
	s.sweeper.wakeAt(sent + d)
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
		if err := s.cancel(ctx, name, r.Token); err != nil {
			return unavailable("cancel", name, err)
		}
	}
	return nil
}

// cancel removes a token's entry, unless it is a reservation.
func (s *Store) cancel(ctx context.Context, name, token string) error {
	rec, ok := s.records.get(name, token)
	if !ok {
		var err error
		if rec, ok, err = s.find(ctx, name, token); err != nil || !ok {
			return err
		}
	}
	if rec.entry.reserved {
		return nil
	}
	if rec.ending {
		return s.finish(ctx, rec)
	}
	_, err := s.end(ctx, rec)
	return err
}
