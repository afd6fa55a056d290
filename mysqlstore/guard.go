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

// Guard ties a transaction in the store's database to the leases in ctx. It returns ErrLost if any
// of these leases ended. If it returns nil, no other owner is granted the leases' names before the
// transaction ends. So a process that was stopped for longer than its TTL cannot write after
// another owner's grant. ctx comes from Do or Lease.Context.
//
// Guard also returns nil for an expired lease that no other request has ended yet: until then, no
// other owner was granted its names.
//
// Call Guard as the transaction's first statement, and roll back at once after an error. Guard
// costs one or two round trips for each name: see New. Renewals and the wait queue do not wait for
// a guard. A long transaction delays only the next holder, and only if the lease ended meanwhile.
//
// The server can end a transaction before its Commit. Some statements commit it: DDL, BEGIN, LOCK
// TABLES. Some errors roll it back: 1213, 1020, and 1205 with innodb_rollback_on_timeout. Then the
// protection ends, and the server commits each later statement separately. A rollback to a
// savepoint ends the protection if, before that savepoint, the transaction neither called Guard nor
// used a table.
//
// If the server may have ended the transaction, call Guard again as the last statement. It returns
// ErrInvalid if the transaction ended. If it returns nil, no other owner was granted the names
// since the lease began, and none is granted them before the open transaction ends.
//
// Guard returns ErrInvalid
//
//   - if the server ended the transaction, or the transaction is read-only;
//   - in an XA transaction: XA PREPARE would end the protection;
//   - at repeatable read, if the transaction read a table before the lease was acquired: its
//     snapshot does not contain the last holder's writes;
//   - if ctx carries no lease from this store. A context from dibs.WithFence or package cohort
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
// because the transaction then uses a snapshot. Without an answer, the lease counts as lost.
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
