// Package doctor examines a PostgreSQL database that a pgstore.Store uses: is it suitable for
// locks?
package doctor

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
)

// Check checks.
func Check(ctx context.Context, s *pgstore.Store) (driver.Findings, error) { return nil, nil }
