package pgstore

import (
	"context"

	"github.com/dibslock/dibs/internal/sqlstore"
)

// removeUnused removes names that nobody has used for some time, off the path of the caller, who has
// acquired a name.
func (s *Store) removeUnused(existed bool) {
	s.unused.Sweep(existed, func(ctx context.Context, names int) error {
		var more bool
		return s.transact(ctx, func(q querier) error {
			return q.QueryRow(ctx, s.text.removeUnused, names, sqlstore.UnusedAfter.Microseconds()).Scan(&more)
		})
	})
}
