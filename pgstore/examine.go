package pgstore

import (
	"context"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/pgstore/internal/doctor"
)

var _ checkup.Examiner = (*Store)(nil)

// Examine implements checkup.Examiner.
func (s *Store) Examine(ctx context.Context) (checkup.Findings, error) {
	statements, err := SQL(s.schema, 0, Version)
	if err != nil {
		return nil, err
	}
	return doctor.Examine(ctx, doctor.Target{
		Store: s, Pool: s.conns.pool, Schema: s.schema, Poll: s.poll, Version: Version, Statements: statements,
	})
}
