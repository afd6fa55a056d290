package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// hold makes a holder's entry last for a TTL, and returns its fence. A lease that this process knows
// keeps its fence.
func (s *Store) hold(ctx context.Context, rec record, fence uint64, ttl, sent time.Duration) (uint64, error) {
	if rec.held && rec.fence > 0 {
		fence = rec.fence
	}
	fence = max(fence, rec.value.Fence)
	err := s.last(ctx, &rec, ttl, fence, sent)
	if err == nil {
		err = s.extended(rec, ttl, fence, sent)
	}
	return fence, s.afterEnd(rec, err)
}

// last makes an entry last for a TTL.
func (s *Store) last(ctx context.Context, rec *record, ttl time.Duration, fence uint64, sent time.Duration) error {
	switch {
	case rec.entry.persistent:
		return s.renewPersistent(ctx, rec, ttl, fence, sent)
	case rec.session != nil && ttl <= rec.session.longestTTL():
		return rec.session.keep(ctx, sent+ttl)
	}
	change := func(_ *node, v *value) { v.TTL, v.Fence = max(v.TTL, milliseconds(ttl)), fence }
	to, err := s.sessions.forTTL(ctx, ttl, s.keys.size(rec.name))
	if errors.Is(err, errTooLong) {
		return s.move(ctx, rec, nil, change)
	}
	if err != nil {
		return err
	}
	if err := s.move(ctx, rec, to, change); err != nil {
		return err
	}
	return to.keep(ctx, sent+ttl)
}

// longestTTL returns the longest TTL for a lease on the session.
func (s *session) longestTTL() time.Duration { return s.length() - slack(s.tick) }

// renewPersistent writes a persistent entry, so that it lasts for a TTL by the leader's clock. It
// never shortens a lease.
func (s *Store) renewPersistent(ctx context.Context, rec *record, ttl time.Duration, fence uint64, sent time.Duration) error {
	l, err := s.linkOf(ctx, *rec)
	if err != nil {
		return err
	}
	v := rec.value
	if rec.held && rec.expires > 0 {
		ttl = max(ttl, rec.expires-sent)
	} else {
		ttl = max(ttl, v.ttl())
	}
	v.TTL, v.Fence = milliseconds(ttl), fence
	stat, err := l.set(ctx, s.keys.entry(rec.name, rec.entry.name), v.bytes(), -1)
	if errors.Is(err, zk.ErrNoNode) {
		return errAgain
	}
	if err == nil {
		rec.value, rec.version = v, stat.Version
	}
	return err
}

// move replaces an entry by another in the same place: on another session or, if to is nil, as a
// persistent znode. The old name is the condition, so a late move never undoes another. It returns
// errAgain if the entry moved or ended. The record uses the session, also if move fails.
func (s *Store) move(ctx context.Context, rec *record, to *session, change func(*node, *value)) error {
	err := s.moveTo(ctx, rec, to, change)
	if err != nil {
		to.leave(s.keys.size(rec.name))
	}
	return err
}

func (s *Store) moveTo(ctx context.Context, rec *record, to *session, change func(*node, *value), more ...any) error {
	n, v := rec.entry.node, rec.value
	n.moves++
	n.persistent = to == nil
	if change != nil {
		change(&n, &v)
	}
	var l *link
	var flags int32
	var err error
	switch {
	case to != nil:
		l, flags = to.link, zk.FlagEphemeral
	case rec.session != nil && !rec.session.hasEnded():
		l = rec.session.link
	default:
		if l, err = s.sessions.get(ctx); err != nil {
			return err
		}
	}
	moved := entry{n, s.config.format.nameOf(n)}
	old := s.keys.entry(rec.name, rec.entry.name)
	ops := append([]any{
		&zk.SetDataRequest{Path: old, Data: v.bytes(), Version: -1}, // tells waiters that it does not leave: see departure
		&zk.DeleteRequest{Path: old, Version: -1},
		&zk.CreateRequest{Path: s.keys.entry(rec.name, moved.name), Data: v.bytes(), Acl: s.config.acl, Flags: flags},
	}, more...)
	_, err = l.multi(ctx, ops...)
	switch {
	case errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists):
		return s.missing(*rec)
	case err != nil:
		return err
	}
	left := rec.session
	rec.entry, rec.value, rec.session, rec.version = moved, v, to, 0
	rec.gone, rec.recorded, rec.moved = nil, false, false
	if !s.records.update(*rec, func(now *record) {
		now.entry, now.value, now.session, now.version = moved, v, to, 0
		now.gone, now.recorded, now.moved = nil, false, false
	}) {
		return errAgain
	}
	left.leave(s.keys.size(rec.name))
	return nil
}

// extended records that a holder's entry lasts for a TTL. It returns errAgain if its end was
// requested.
func (s *Store) extended(rec record, ttl time.Duration, fence uint64, sent time.Duration) error {
	until := sent + ttl
	ok := s.records.update(rec, func(now *record) {
		if now.held {
			until = max(until, now.expires)
		}
		now.held, now.fence, now.expires = true, max(fence, now.fence), until
		now.value, now.version, now.moved = rec.value, rec.version, false
		now.endWait(now.wait)
	})
	if !ok {
		return errAgain
	}
	s.sweeper.wakeAt(until)
	return nil
}

// find reads a token's entry, which another process may have made. The record that it returns is not
// recorded.
func (s *Store) find(ctx context.Context, name, token string) (record, bool, error) {
	l, err := s.sessions.get(ctx)
	if err != nil {
		return record{}, false, err
	}
	for {
		q, _, err := s.readFresh(ctx, l, name)
		if err != nil {
			return record{}, false, err
		}
		i := q.findID(idOf(token))
		if i < 0 {
			return record{}, false, nil
		}
		data, stat, err := l.get(ctx, s.keys.entry(name, q[i].name))
		if errors.Is(err, zk.ErrNoNode) {
			continue // it ended or moved just now
		}
		if err != nil {
			return record{}, false, err
		}
		v, ok := parseValue(data)
		if !ok || v.Token != token {
			return record{}, false, nil
		}
		rec := record{name: name, token: token, entry: q[i], value: v, held: i < q.granted() && !v.Waiting, fence: v.Fence, version: stat.Version, owner: stat.EphemeralOwner}
		if rec.entry.persistent {
			left, err := s.remainingOf(ctx, l, v, stat)
			if err != nil {
				return record{}, false, err
			}
			rec.expires = s.clock.Check() + left
		}
		return rec, true, nil
	}
}

// forget removes the record of an entry that ended.
func (s *Store) forget(rec record) {
	if last, ok := s.records.remove(rec); ok {
		last.session.leave(s.keys.size(rec.name))
	}
}
