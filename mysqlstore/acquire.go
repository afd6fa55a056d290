package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := check(c); err != nil {
		return reply, err
	}
	s.kept.need(c.TTL)
	reply, err = s.db.Acquire(ctx, s.text.acquire, listOf(c.Names()...), c)
	if reply.Ticket != 0 {
		s.fetches.waits(c.Client)
	}
	if reply.Position == 1 {
		s.fetches.queued()
	}
	s.db.RemoveUnused(false)
	return reply, err
}

// Resize implements driver.Resizer.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := check(c); err != nil {
		return reply, err
	}
	defer s.fetches.changed()
	return s.db.Resize(ctx, c)
}
