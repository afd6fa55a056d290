package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

const reserveFencesSQL = `SELECT at, held, last FROM dibs.reserve_fences($1, $2, $3, $4, $5)`

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	return s.db.ReserveFences(ctx, r)
}
