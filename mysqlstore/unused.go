package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/internal/sqlstore"
)

// removeUnused removes names that nobody has used for some time, off the path of the caller.
func (s *Store) removeUnused() {
	s.unused.Sweep(func(ctx context.Context, after string, names int) (string, error) {
		var last []byte
		row := s.db.QueryRowContext(ctx, s.text.removeUnused, []byte(after), names, sqlstore.UnusedAfter.Microseconds())
		err := row.Scan(&last)
		return string(last), err
	})
}
