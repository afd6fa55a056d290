package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (held bool, err error) {
	if err := driver.CheckName(r.Name); err != nil {
		return false, err
	}
	defer s.fetches.changed()
	return s.db.Release(ctx, s.text.release, r, sqlstore.Micros(max(r.Reserve, 0)), r.Unreserve)
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	if err := check(c); err != nil {
		return err
	}
	defer s.fetches.changed()
	return s.db.Cancel(ctx, c)
}

// Revoke implements driver.Revoker.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (revoked bool, err error) {
	defer s.fetches.changed()
	return s.db.Revoke(ctx, r)
}
