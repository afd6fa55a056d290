package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// Inspect implements driver.Inspector.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	return s.db.Inspect(ctx, name)
}

// InspectAll implements driver.Lister. It reads up to 500 names in a query. If ctx has no deadline,
// driver.OperationTimeout limits each query.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	return s.db.InspectAll(ctx, names)
}

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	return s.db.List(ctx, pattern)
}
