package pgstore_test

import (
	"context"
	"errors"
	"log"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// A program with database/sql makes a pool, and takes its *sql.DB from the pool.
func Example_databaseSQL() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	store := pgstore.New(pool)
	locks := dibs.New(store)
	defer locks.Close()
	err = locks.Mutex("account:7").Do(ctx, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := store.Guard(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 7"); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		log.Print(err)
	}
}

// The example's lines must work: waiters are notified, and a guard fails without its lease.
func TestDatabaseSQL(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	s := newStoreOn(t, pool)
	locks := dibs.New(s)
	t.Cleanup(func() { locks.Close() })
	l, err := locks.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	guard := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return s.Guard(l.Context(), tx)
	}
	if err := guard(); err != nil {
		t.Errorf("a guard of a held lease: %v", err)
	}
	if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: l.Fence()}); err != nil {
		t.Fatal(err)
	}
	if err := guard(); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("a guard after a revocation: %v, want ErrLost", err)
	}
}
