package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
)

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (held bool, err error) {
	if err := driver.CheckName(r.Name); err != nil {
		return false, err
	}
	v := verb{op: "release", name: r.Name, text: s.text.release, until: r.Until, soon: true}
	err = s.call(ctx, v, func(until int64) []any {
		if r.TokenEnds {
			until = math.MaxInt64 // a late delivery finds nothing to release
		}
		return []any{listOf(r.Name), []byte(r.Token), sqlstore.Micros(max(r.Reserve, 0)), r.Unreserve, until}
	}, scanFlag(&held))
	s.fetches.changed()
	return held, err
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	if err := check(c); err != nil {
		return err
	}
	var done bool
	v := verb{op: "cancel", name: c.Name, text: s.text.cancel, until: c.Until, soon: true}
	err := s.call(ctx, v, func(until int64) []any {
		return []any{listOf(c.Names()...), []byte(c.Token), until}
	}, scanFlag(&done))
	s.fetches.changed()
	return err
}

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (revoked bool, err error) {
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	fence := r.Fence
	if fence == 0 {
		if fence, err = s.fenceOf(ctx, r.Name, r.Token); fence == 0 {
			return false, err
		}
	}
	if fence > math.MaxInt64 {
		return false, nil // no store here has granted it
	}
	v := verb{op: "revoke", name: r.Name, text: s.text.revoke}
	err = s.call(ctx, v, func(until int64) []any {
		return []any{listOf(r.Name), int64(fence), []byte(r.Reason), until}
	}, scanFlag(&revoked))
	s.fetches.changed()
	return revoked, err
}

// fenceOf returns the fence of the lease with a token, or of what it has reserved. It is zero if
// there is none.
func (s *Store) fenceOf(ctx context.Context, name, token string) (fence uint64, err error) {
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	n, whose := hexOf(name), hexOf(token)
	err = s.use(ctx, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, s.text.fenceOf, n, whose, n, whose).Scan(&fence)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, unavailable("revoke", name, err)
	}
	return fence, nil
}

// scanFlag reads the server's time and a flag, which is null if the request was void.
func scanFlag(flag *bool) func(*sql.Row) (at int64, void bool, err error) {
	return func(row *sql.Row) (at int64, void bool, err error) {
		var f sql.NullBool
		if err := row.Scan(&at, &f); err != nil || !f.Valid {
			return at, true, err
		}
		*flag = f.Bool
		return at, false, nil
	}
}
