package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	return s.db.ReserveFences(ctx, r)
}
