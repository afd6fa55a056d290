package pgstore

import (
	"context"

	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

// removeUnused counts an acquire. After some of them it removes, in the background, names that nobody
// has used for some time. existed: the acquired name certainly existed.
func (s *Store) removeUnused(existed bool) {
	s.unused.Sweep(existed, func(ctx context.Context, names int) error {
		var more bool
		args := []any{names, sqlstore.UnusedAfter.Microseconds()}
		return s.transact(ctx, false, s.text.removeUnused, args, oneRow(func(row pgx.Row) error { return row.Scan(&more) }))
	})
}
