package pgstore

import (
	"context"
	"errors"
	"math"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

const releaseSQL = `SELECT * FROM dibs.release($1, $2, $4, $5, $3)`

const releaseOneSQL = `SELECT * FROM dibs.release_one($1, $2, $3)`

const cancelSQL = `SELECT * FROM dibs.cancel($1, $2, $3)`

const revokeSQL = `SELECT * FROM dibs.revoke($1, $2, $3)`

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
		if given, err := s.isGiven(ctx, r.Name, r.Token, r.Until); given || err != nil {
			return given, s.forget(r.Name, r.Token, err)
		}
	}
	name := toText(r.Name)
	if r.Reserve > 0 || r.Unreserve {
		held, err = s.release(ctx, s.text.release, r, name, sqlstore.Micros(r.Reserve), r.Unreserve)
	} else {
		held, err = s.releaseWhole(ctx, r, name)
	}
	return held, s.forget(r.Name, r.Token, err)
}

// forget forgets that a transaction may have released a lease, unless a release has failed.
func (s *Store) forget(name, token string, failed error) error {
	if failed == nil {
		s.given.remove(name, token)
	}
	return failed
}

func (s *Store) releaseWhole(ctx context.Context, r driver.ReleaseRequest, name string) (held bool, err error) {
	if s.quiet.has(name) {
		held, err := s.release(ctx, s.text.releaseQuiet, r, name)
		if !notQuiet(err) {
			return held, err
		}
		s.quiet.remove(name)
	}
	return s.release(ctx, s.text.releaseOne, r, name)
}

func (s *Store) release(ctx context.Context, text string, r driver.ReleaseRequest, name string, more ...any) (held bool, err error) {
	v := verb{op: "release", name: r.Name, text: text, until: r.Until, urgent: true}
	err = s.call(ctx, v, func(until int64) []any {
		if r.TokenEnds {
			until = math.MaxInt64 // a late delivery finds nothing to release
		}
		return append([]any{name, toText(r.Token), until}, more...)
	}, scanFlag(&held))
	return held, err
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	if err := driver.CheckAcquire(c); err != nil {
		return err
	}
	var done bool
	v := verb{op: "cancel", name: c.Name, text: s.text.cancel, until: c.Until, urgent: true}
	err := s.call(ctx, v, func(until int64) []any { return []any{toTexts(c.Names()), toText(c.Token), until} }, scanFlag(&done))
	for _, name := range c.Names() {
		s.given.remove(name, c.Token)
	}
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
	v := verb{op: "revoke", name: r.Name, text: s.text.revoke}
	err = s.call(ctx, v, func(int64) []any { return []any{toText(r.Name), int64(fence), toText(r.Reason)} }, scanFlag(&revoked))
	return revoked, err
}

// fenceOf returns the fence of the lease with a token, or of what it has reserved. It is zero if
// there is none.
func (s *Store) fenceOf(ctx context.Context, name, token string) (fence uint64, err error) {
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	err = s.conns.use(ctx, false, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.text.fenceOf, toText(name), toText(token)).Scan(&fence)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, unavailable("revoke", name, err)
	}
	return fence, nil
}

// scanFlag reads the server's time and a flag, which is null if the request was void.
func scanFlag(flag *bool) func(pgx.Row) (at int64, void bool, err error) {
	return func(row pgx.Row) (at int64, void bool, err error) {
		var f *bool
		if err := row.Scan(&at, &f); err != nil || f == nil {
			return at, true, err
		}
		*flag = *f
		return at, false, nil
	}
}
