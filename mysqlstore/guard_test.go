package mysqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// newClient returns a store's client, and the store's database.
func newClient(t *testing.T, options ...dibs.Option) (*mysqlstore.Store, *dibs.Client, *sql.DB) {
	t.Helper()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	s := newStoreOn(t, db)
	locks := dibs.New(s, append([]dibs.Option{dibs.Timeout(10 * time.Second)}, options...)...)
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, locks, db
}

// beginGuarded begins a transaction guarded by ctx's leases.
func beginGuarded(ctx context.Context, t *testing.T, s *mysqlstore.Store, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // without effect after a commit
	if err := s.Guard(ctx, tx); err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestGuards(t *testing.T) {
	t.Parallel()
	sqldrill.RunGuards(t, func(t *testing.T, options ...dibs.Option) sqldrill.Guarded {
		s, locks, db := newClient(t, options...)
		return sqldrill.Guarded{Store: s, Locks: locks, Begin: func(ctx context.Context, level sql.IsolationLevel) (sqldrill.Transaction, error) {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			return sqldrill.SQLTransaction{Tx: tx, Guarding: s.Guard}, err
		}}
	})
}
