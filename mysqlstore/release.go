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
	held, err = s.db.Release(ctx, s.text.release, r, sqlstore.Micros(max(r.Reserve, 0)), r.Unreserve)
	if err == nil && !held && !r.Unreserve {
		held, err = s.db.IsGiven(ctx, "release", r.Name, r.Token, r.Until)
	}
	return held, s.db.ForgetGiven(r.Name, r.Token, err)
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	if err := check(r); err != nil {
		return err
	}
	defer s.fetches.changed()
	return s.db.Cancel(ctx, r)
}

// Revoke implements driver.Revoker.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (revoked bool, err error) {
	defer s.fetches.changed()
	return s.db.Revoke(ctx, r)
}
