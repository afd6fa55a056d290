package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/internal/sqlstore"
)

// removeUnused removes names that nobody has used for some time, off the path of the caller.
func (s *Store) removeUnused() {
	s.unused.Sweep(false, func(ctx context.Context, names int) error {
		var more bool
		return s.db.QueryRowContext(ctx, s.text.removeUnused, names, sqlstore.UnusedAfter.Microseconds()).Scan(&more)
	})
}
