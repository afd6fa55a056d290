package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A balance is changed under a lock, in a transaction that cannot be committed without it.
func ExampleStore_GuardPgx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, shop()) // such as postgres://localhost/shop
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store := pgstore.New(pool)
	if err := store.Migrate(ctx); err != nil { // in a program: once, at a deployment
		log.Fatal(err)
	}
	locks := dibs.New(store, dibs.Wait(3*time.Second))
	defer locks.Close()

	withdraw := func(ctx context.Context, amount int) (balance int, err error) {
		return dibs.Call(ctx, locks.Mutex("account:7"), func(ctx context.Context) (int, error) {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := store.GuardPgx(ctx, tx); err != nil {
					return err // ErrLost: nothing is written
				}
				// Each statement is part of the transaction: the guard protects no other one.
				const change = "UPDATE accounts SET balance = balance - $1 WHERE id = 7 RETURNING balance"
				return tx.QueryRow(ctx, change, amount).Scan(&balance)
			})
			return balance, err
		})
	}
	fmt.Println(withdraw(ctx, 10))
	fmt.Println(withdraw(ctx, 20))
	// Output:
	// 90 <nil>
	// 70 <nil>
}

// shop returns the URL of a new database with an account of 100.
func shop() string {
	ctx, name := context.Background(), fmt.Sprintf("shop%d", schemas.Add(1))
	startServer()
	if serverErr != nil {
		log.Fatal(serverErr)
	}
	at, err := url.Parse(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	for _, statement := range []string{"CREATE DATABASE " + name, "CREATE TABLE accounts AS SELECT 7 AS id, 100 AS balance"} {
		conn, err := pgx.Connect(ctx, at.String())
		if err != nil {
			log.Fatal(err)
		}
		if _, err := conn.Exec(ctx, statement); err != nil {
			log.Fatal(err)
		}
		if err := conn.Close(ctx); err != nil {
			log.Fatal(err)
		}
		at.Path = "/" + name
	}
	return at.String()
}
