package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

// Extend implements driver.Store. The first extension of a lease writes its fence, and watches its
// entry. Later extensions send nothing: the session's proof is for all its leases, and the watch
// tells when an entry is gone.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	ctx, cancel, err := s.begin(ctx, "extend", "", noLimit)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer cancel()
	sent := s.clock.Check()
	var slow []int
	for i := range requests {
		if !s.extendKnown(requests[i], sent) {
			slow = append(slow, i)
		}
	}
	concurrently(slow, func(i int) {
		_, err := again(func() (struct{}, error) { return struct{}{}, s.extend(ctx, requests[i], sent) })
		if err != nil && !errors.Is(err, driver.ErrLost) {
			err = unavailable("extend", requests[i].Name, err)
		}
		errs[i] = err
	})
	return errs
}

// extendKnown extends a lease without a request. It returns false if that is not possible.
func (s *Store) extendKnown(r driver.ExtendRequest, sent time.Duration) bool {
	rec, ok := s.records.get(r.Name, r.Token)
	if !ok || !rec.held || rec.ending || !rec.recorded || rec.session == nil || rec.changed() {
		return false
	}
	if r.TTL > rec.session.longestTTL() || !rec.session.lasts(sent+r.TTL) {
		return false
	}
	return s.extended(rec, r.TTL, rec.fence, sent) == nil
}

// changed reports whether somebody may have changed or removed the entry.
func (rec record) changed() bool {
	select {
	case <-rec.gone:
		return true
	default:
		return false
	}
}

// extend extends a lease.
func (s *Store) extend(ctx context.Context, r driver.ExtendRequest, sent time.Duration) error {
	if err := driver.CheckName(r.Name); err != nil {
		return err
	}
	rec, ok := s.records.get(r.Name, r.Token)
	if !ok || !rec.held || rec.ending || rec.session == nil && !rec.entry.persistent || rec.moved {
		return s.extendFound(ctx, r, sent)
	}
	return s.extendRecord(ctx, r, rec, sent)
}

// extendFound extends an entry that a read finds. It may be of another process.
func (s *Store) extendFound(ctx context.Context, r driver.ExtendRequest, sent time.Duration) error {
	rec, found, err := s.findOwn(ctx, r.Name, r.Token)
	switch {
	case err != nil:
		return err
	case !found || !rec.held || rec.entry.reserved:
		if rec.held && !found {
			s.forget(rec)
		}
		return driver.ErrLost
	case rec.ending:
		return errEnding
	}
	if r.Client != "" {
		rec.value.Client = r.Client
	}
	rec.fence, rec.recorded, rec.gone, rec.moved = max(rec.fence, r.Fence), false, nil, false
	if rec.number == 0 && !s.records.add(&rec) {
		return errAgain
	}
	return s.extendRecord(ctx, r, rec, sent)
}

// extendRecord extends an entry that exists, as far as this process knows.
func (s *Store) extendRecord(ctx context.Context, r driver.ExtendRequest, rec record, sent time.Duration) error {
	ttl, fence := max(r.TTL, s.sessions.tick()), max(rec.fence, r.Fence)
	if rec.session == nil && !rec.entry.persistent && rec.entry.name != "" {
		ttl = max(ttl, rec.value.ttl()) // another process may have renewed it for longer
	}
	if err := s.last(ctx, &rec, ttl, fence, sent); err != nil {
		return s.afterEnd(rec, err)
	}
	if rec.session != nil {
		if err := s.recordFence(ctx, &rec, fence); err != nil {
			return s.afterEnd(rec, err)
		}
	}
	return s.extended(rec, ttl, fence, sent)
}

// recordFence writes a lease's fence into its entry, and watches the entry. The write also proves
// that the entry exists.
func (s *Store) recordFence(ctx context.Context, rec *record, fence uint64) error {
	path := s.keys.entry(rec.name, rec.entry.name)
	if v := rec.value; v.Fence != fence || !rec.recorded {
		v.Fence = fence
		_, err := rec.session.set(ctx, path, v.bytes(), -1)
		if errors.Is(err, zk.ErrNoNode) {
			return s.missing(*rec)
		}
		if err != nil {
			return err
		}
		rec.value = v
	}
	gone, exists, err := rec.session.gone(ctx, path)
	if err != nil {
		return err
	}
	if !exists {
		return s.missing(*rec)
	}
	s.records.update(*rec, func(now *record) { now.recorded, now.gone, now.value = true, gone, rec.value })
	return nil
}

// missing records that an entry is not in its znode. It returns errAgain: the entry may have moved.
func (s *Store) missing(rec record) error {
	s.records.update(rec, func(now *record) { now.moved = true })
	return errAgain
}
