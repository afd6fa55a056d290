package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, r driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := check(r); err != nil {
		return reply, err
	}
	s.kept.need(r.TTL)
	reply, err = s.db.Acquire(ctx, s.text.acquire, listOf(r.Names()...), r)
	if reply.Ticket != 0 {
		s.fetches.waits(r.Client)
	}
	if reply.Position == 1 {
		s.fetches.queued()
	}
	s.db.RemoveUnused(false)
	return reply, err
}

// Resize implements driver.Resizer.
func (s *Store) Resize(ctx context.Context, r driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := check(r); err != nil {
		return reply, err
	}
	defer s.fetches.changed()
	return s.db.Resize(ctx, r)
}
