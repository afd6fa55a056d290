package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/mysqlstore/internal/doctor"
)

var _ checkup.Examiner = (*Store)(nil)

// Examine implements checkup.Examiner.
func (s *Store) Examine(ctx context.Context) (checkup.Findings, error) {
	statements, err := SQL(s.prefix, 0, Version)
	if err != nil {
		return nil, err
	}
	return doctor.Examine(ctx, doctor.Target{Store: s, DB: s.pool, Version: Version, Statements: statements})
}
