package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

const releaseSQL = `SELECT * FROM dibs.release($1, $2, $3, $4, $5)`

const releaseOneSQL = `SELECT * FROM dibs.release_one($1, $2, $3)`

const cancelSQL = `SELECT * FROM dibs.cancel($1, $2, $3)`

const revokeSQL = `SELECT * FROM dibs.revoke($1, $2, $3, $4)`

const fenceOfSQL = `SELECT fence FROM (
  SELECT fence, reserved FROM dibs.names WHERE name = $1 AND token = $2
  UNION ALL SELECT fence, reserved FROM dibs.holders WHERE name = $1 AND token = $2
) AS h ORDER BY reserved LIMIT 1`

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (held bool, err error) {
	if err := driver.CheckName(r.Name); err != nil {
		return false, err
	}
	if !r.Unreserve {
		if given, err := s.db.IsGiven(ctx, "release", r.Name, r.Token, r.Until); given || err != nil {
			return given, s.db.ForgetGiven(r.Name, r.Token, err)
		}
	}
	if r.Reserve > 0 || r.Unreserve {
		held, err = s.db.Release(ctx, s.text.release, r, sqlstore.Micros(max(r.Reserve, 0)), r.Unreserve)
	} else {
		held, err = s.releaseWhole(ctx, r)
	}
	return held, s.db.ForgetGiven(r.Name, r.Token, err)
}

func (s *Store) releaseWhole(ctx context.Context, r driver.ReleaseRequest) (held bool, err error) {
	if name := toText(r.Name); s.quiet.has(name) {
		held, err := s.db.Release(ctx, s.text.releaseQuiet, r)
		if !notQuiet(err) {
			return held, err
		}
		s.quiet.remove(name)
	}
	return s.db.Release(ctx, s.text.releaseOne, r)
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	if err := driver.CheckAcquire(r); err != nil {
		return err
	}
	return s.db.Cancel(ctx, r)
}

// Revoke implements driver.Revoker.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (revoked bool, err error) {
	return s.db.Revoke(ctx, r)
}
