package pgstore

import (
	"context"

	"github.com/dibslock/dibs/internal/sqlstore"
)

// removeUnused removes names that nobody has used for some time, off the path of the caller.
func (s *Store) removeUnused() {
	s.unused.Sweep(func(ctx context.Context, after string, names int) (string, error) {
		var last *string
		err := s.transact(ctx, func(q querier) error {
			return q.QueryRow(ctx, s.text.removeUnused, after, names, sqlstore.UnusedAfter.Microseconds()).Scan(&last)
		})
		if err != nil || last == nil {
			return "", err
		}
		return *last, nil
	})
}
