package pgstore

import (
	"context"
	"database/sql"

	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

// Guard ties a transaction in the database of the store to the leases that ctx carries. It
// returns ErrLost if one of them is not held any more. Otherwise nobody else is granted its
// names before the transaction ends. So a process that was stopped for longer than its TTL
// cannot write. ctx is that of Do or of Lease.Context.
//
// Call Guard before the first write of the transaction. It costs one round trip for each
// name. Renewals and the wait queue do not wait for a guard. A long transaction delays only
// the next holder, and only if the lease has expired meanwhile.
//
// With the isolation level repeatable read or serializable, call Guard as the first statement.
// If the lease was renewed after the snapshot of the transaction, the error has the SQLSTATE
// 40001. Then repeat the transaction.
//
// Guard returns ErrInvalid if ctx carries no lease of this store, or one of a cohort: its calls
// share a lease in the store (see dibs.Cohort).
func (s *Store) Guard(ctx context.Context, tx pgx.Tx) error { return s.guard(ctx, inPgx(tx)) }

// GuardSQL is Guard for a transaction of database/sql.
func (s *Store) GuardSQL(ctx context.Context, tx *sql.Tx) error { return s.guard(ctx, inSQL(tx)) }

// A row is that of pgx or of database/sql.
type row interface{ Scan(into ...any) error }

// A queryRow executes a statement in the transaction of the user.
type queryRow func(ctx context.Context, text string, args ...any) row

func inPgx(tx pgx.Tx) queryRow {
	return func(ctx context.Context, text string, args ...any) row { return tx.QueryRow(ctx, text, args...) }
}

func inSQL(tx *sql.Tx) queryRow {
	return func(ctx context.Context, text string, args ...any) row { return tx.QueryRowContext(ctx, text, args...) }
}

const guardSQL = `SELECT dibs.guard($1, $2)`

func (s *Store) guard(ctx context.Context, query queryRow) error {
	return sqlstore.Guard(ctx, s, func(name, token string) (held bool, err error) { return s.holds(ctx, query, name, token) })
}

// holds prevents the end of a lease, and reports whether it is held.
func (s *Store) holds(ctx context.Context, query queryRow, name, token string) (held bool, err error) {
	if err := query(ctx, s.text.guard, toText(name), token).Scan(&held); err != nil {
		return false, unavailable("guard", name, err)
	}
	return held, nil
}
