package mysqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dibslock/dibs/internal/sqlstore"
)

// Guard ties a transaction in the database of the store to the leases that ctx carries. It
// returns ErrLost if one of them has ended. Otherwise nobody else is granted its names before
// the transaction ends. So a process that was stopped for longer than its TTL cannot
// write. ctx is that of Do or of Lease.Context.
//
// A lease that has expired still guards if nobody has ended it since: nobody else has held
// its names.
//
// Call Guard first in the transaction, and roll back at once after ErrLost. It costs two
// round trips for each name. Renewals and the wait queue do not wait for a guard. A long
// transaction delays only the next holder, and only if the lease has ended meanwhile.
//
// Guard returns ErrInvalid if ctx carries no lease of this store, or one of a cohort: its calls
// share a lease in the store (see dibs.Cohort).
func (s *Store) Guard(ctx context.Context, tx *sql.Tx) error {
	return sqlstore.Guard(ctx, s, func(g sqlstore.Guarded) (held bool, err error) {
		// Under repeatable read, a locking read of a row that does not exist would keep others from
		// acquiring names until the transaction ends. So a plain read is before it.
		for _, text := range []string{s.text.leaseExists, s.text.guard} {
			err = tx.QueryRowContext(ctx, text, hexOf(g.Name), hexOf(g.Token)).Scan(&held)
			if errors.Is(err, sql.ErrNoRows) {
				return false, nil
			}
			if err != nil {
				return false, unavailable("guard", g.Name, err)
			}
		}
		return true, nil
	})
}
