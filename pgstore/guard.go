package pgstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
	"github.com/jackc/pgx/v5"
)

// Guard ties a transaction in the store's database to the leases in ctx. It returns ErrLost if any
// of these leases is no longer held. If it returns nil, no other owner is granted the leases' names
// before the transaction ends. So a process that was stopped for longer than its TTL cannot write
// after another owner's grant. A rollback to a later savepoint does not end this protection. ctx
// comes from Do or Lease.Context.
//
// Call Guard before the transaction's first write. It costs a round trip for each name. Renewals
// and the wait queue do not wait for a guard. A long transaction delays only the next holder, and
// only if the lease expired meanwhile. After PREPARE TRANSACTION, the protection lasts until COMMIT
// PREPARED.
//
// At isolation level repeatable read or serializable, call Guard as the first statement. If the
// lock changed after the transaction's snapshot, the error has SQLSTATE 40001. Such a change is a
// renewal, a grant, or a request that begins to wait. Repeat the transaction after this error.
//
// Guard returns ErrInvalid
//
//   - after SAVEPOINT, which pgx's nested Begin also sends: a rollback to the savepoint would end
//     the protection. Call Guard in the outer transaction, before the savepoint. After a nested pgx
//     transaction is rolled back, its savepoint still exists, so Guard still returns ErrInvalid.
//   - in a read-only transaction;
//   - if ctx carries no lease from this store. A context from dibs.WithFence or package cohort
//     carries none.
func (s *Store) Guard(ctx context.Context, tx *sql.Tx) error { return s.guard(ctx, inSQL(tx)) }

// GuardPgx is Guard for a pgx transaction.
func (s *Store) GuardPgx(ctx context.Context, tx pgx.Tx) error { return s.guard(ctx, inPgx(tx)) }

// A queryRow executes a statement in the user's transaction.
type queryRow func(ctx context.Context, text string, args ...any) sqlstore.Row

func inPgx(tx pgx.Tx) queryRow {
	return func(ctx context.Context, text string, args ...any) sqlstore.Row {
		return tx.QueryRow(ctx, text, args...)
	}
}

func inSQL(tx *sql.Tx) queryRow {
	return func(ctx context.Context, text string, args ...any) sqlstore.Row {
		return tx.QueryRowContext(ctx, text, args...)
	}
}

const guardSQL = `SELECT dibs.guard($1, $2, $3)`

func (s *Store) guard(ctx context.Context, query queryRow) error {
	return sqlstore.Guard(ctx, s, func(g sqlstore.Guarded) (bool, error) { return s.holds(ctx, query, g) })
}

// holds prevents the end of a lease, and reports whether the lease is held.
func (s *Store) holds(ctx context.Context, query queryRow, g sqlstore.Guarded) (held bool, err error) {
	if err := query(ctx, s.text.guard, toText(g.Name), toText(g.Token), int64(g.Fence)).Scan(&held); err != nil {
		return false, notGuarded("guard", g.Name, err)
	}
	return held, nil
}

// notGuarded returns the error for a transaction that cannot be tied to a lease on a name.
func notGuarded(op, name string, err error) error {
	reason := ""
	switch {
	case isCode(err, codeReadOnly):
		reason = "the transaction is read-only, so it has nothing to guard"
	case isCode(err, codeSavepoint):
		reason = "the transaction has a savepoint, or is a nested one, and a rollback to it would end the guard: call it with the outer transaction, before the savepoint"
	case isCode(err, codeIsolation):
		reason = "the isolation level of the transaction must be read committed"
	case isCode(err, codeReplica):
		reason = "session_replication_role is replica, so the commit would not release it"
	case isCode(err, codeConflict):
		err = fmt.Errorf("the lock has changed since the snapshot of the transaction: repeat it, with Guard as the first statement: %w", err)
	}
	if reason != "" {
		return fmt.Errorf("%w: %s %q: %s: %w", driver.ErrInvalid, op, name, reason, err)
	}
	return unavailable(op, name, err)
}
