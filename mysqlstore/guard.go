package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// Guard ties a transaction in the database of the store to the leases that ctx carries. It
// returns ErrLost if one of them has ended. Otherwise nobody else is granted its names before
// the transaction ends. So a process that was stopped for longer than its TTL cannot
// write. ctx is that of Do or of Lease.Context.
//
// A lease that has expired still guards if nobody has ended it since: nobody else has held
// its names.
//
// Call Guard as the first statement of the transaction, and roll back at once after an error. It costs
// one round trip for each name, or two: see New. Renewals and the wait queue do not wait for a guard.
// A long transaction delays only the next holder, and only if the lease has ended meanwhile.
//
// The server may end a transaction before its Commit: by a statement that commits (DDL, BEGIN, LOCK
// TABLES), or with an error (1213, 1020, 1205 with innodb_rollback_on_timeout). This ends the guard,
// and each later statement is committed by itself. The rollback to a savepoint ends a guard only if
// the transaction had neither called Guard nor used a table before that savepoint.
//
// If this may have happened, call Guard again as the last statement. It returns ErrInvalid if the
// transaction has ended. If it returns nil, nobody else was granted the names since the lease began,
// nor is before the end of the transaction that is open then.
//
// Guard returns ErrInvalid
//   - if the transaction has ended in the server, or is read-only;
//   - in a transaction of XA: XA PREPARE would end the guard;
//   - at repeatable read, if the transaction has read a table before the lease was acquired: it does
//     not see what the last holder has written;
//   - if ctx carries no lease of this store: a context of dibs.WithFence, or of package cohort,
//     carries none.
func (s *Store) Guard(ctx context.Context, tx *sql.Tx) error {
	return sqlstore.Guard(ctx, s, func(g sqlstore.Guarded) (held bool, err error) { return s.holds(ctx, tx, s.text.guard, g) })
}

// holds prevents the end of a lease, by a statement with more arguments, and reports whether it is held.
func (s *Store) holds(ctx context.Context, tx *sql.Tx, text string, g sqlstore.Guarded, more ...any) (held bool, err error) {
	result := ""
	args := []any{hexOf(g.Name), hexOf(g.Token), int64(cmp.Or(g.Fence, math.MaxInt64))}
	if err := tx.QueryRowContext(ctx, text, append(slices.Clone(args), more...)...).Scan(&result); err != nil {
		return false, notGuarded(g.Name, err)
	}
	if result == "lost" && s.hasGuard(ctx, args) {
		result = "old"
	}
	if reason := refusals[result]; reason != "" {
		return false, fmt.Errorf("%w: guard %q: %s", driver.ErrInvalid, g.Name, reason)
	}
	return result == "held", nil
}

// hasGuard reports whether a lease invisible to a transaction is held. It uses another connection,
// because the transaction has a snapshot then. Without an answer, the lease counts as lost.
func (s *Store) hasGuard(ctx context.Context, args []any) (held bool) {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout) // transactions may have all connections
	defer cancel()
	err := s.db.One(ctx, true, s.text.hasGuard, args, &held)
	return err == nil && held
}

// refusals contains the reasons against guarding a transaction, by the procedure's result.
var refusals = map[string]string{
	"ended": "the transaction has ended in the server: a statement has committed it (such as DDL), or an error has rolled it back (such as 1213)",
	"xa":    "XA PREPARE would end the guard",
	"old":   "the snapshot of the transaction is older than the lease: begin the transaction after the lock, with Guard as the first statement",
}

// notGuarded returns the error for a transaction that cannot be tied to a lease on a name.
func notGuarded(name string, err error) error {
	switch numberOf(err) {
	case readOnly:
		return fmt.Errorf("%w: guard %q: the transaction is read-only, so it has nothing to guard: %w", driver.ErrInvalid, name, err)
	case changed:
		err = fmt.Errorf("the lock has changed since the snapshot of the transaction: repeat it, with Guard as the first statement: %w", err)
	}
	return unavailable("guard", name, err)
}
