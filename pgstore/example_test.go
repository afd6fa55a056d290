package pgstore_test

import (
	"context"
	"log"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A balance is changed under a lock, in a transaction that cannot be committed without it.
func ExampleStore_Guard() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store := pgstore.New(pool)
	locks := dibs.New(store)
	defer locks.Close()
	err = locks.Mutex("account:7").Do(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := store.GuardPgx(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 7")
			return err
		})
	})
	if err != nil {
		log.Print(err)
	}
}
