package mysqlstore_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/mysqlstore"
)

// A balance is changed under a lock, in a transaction that cannot be committed without it.
func ExampleStore_Guard() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app@tcp(localhost:3306)/shop?interpolateParams=true")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	store := mysqlstore.New(db)
	locks := dibs.New(store)
	defer locks.Close()
	err = locks.Mutex("account:7").Do(ctx, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // no effect after the commit
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
