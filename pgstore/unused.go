package pgstore

import (
	"context"

	"github.com/dibslock/dibs/internal/sqlstore"
)

// removeUnused counts an acquire. After some of them it removes, in the background, names that nobody
// has used for some time. existed: the acquired name certainly existed.
func (s *Store) removeUnused(existed bool) {
	s.unused.Sweep(existed, func(ctx context.Context, names int) error {
		var more bool
		return s.transact(ctx, false, func(q querier) error {
			return q.QueryRow(ctx, s.text.removeUnused, names, sqlstore.UnusedAfter.Microseconds()).Scan(&more)
		})
	})
}
