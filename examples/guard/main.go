//go:build unix

// Guard changes the balance of an account in PostgreSQL, under a lock in the same database.
// The transaction that writes is guarded: it is refused if the lock was lost before.
//
//	DIBS_URL=postgres://localhost/test go run ./examples/guard
//	DIBS_URL=postgres://localhost/test go run ./examples/guard -stop
//
// With -stop, a process holding the lock is stopped for longer than its TTL, between its
// read and its write. Another process changes the balance meanwhile. This happens twice:
// without the guard, and with it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/internal/exstore"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	stop := flag.Bool("stop", false, "stop a holder for longer than its TTL")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Getenv("DIBS_URL"), *stop, os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, stop bool, out io.Writer) error {
	if guarded, holder := os.LookupEnv(holderVariable); holder {
		return runHolder(ctx, url, guarded == "true", out)
	}
	a, closeAll, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer closeAll()
	if stop {
		return stopHolder(ctx, a, url, out)
	}
	if err := a.reset(ctx); err != nil {
		return err
	}
	for _, amount := range []int64{+50, -30} {
		balance, err := a.add(ctx, amount)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%+4d   balance %d\n", amount, balance)
	}
	return nil
}

// open returns the account, with its locks in the same database.
func open(ctx context.Context, url string) (a *account, closeAll func(), err error) {
	pool, _, err := exstore.DialPostgres(ctx, url) // or pgxpool.New
	if err != nil {
		return nil, nil, err
	}
	store := pgstore.New(pool, pgstore.Schema(exstore.Schema))
	if err := prepare(ctx, pool, store); err != nil {
		pool.Close()
		return nil, nil, err
	}
	locks := dibs.New(store, dibs.TTL(2*time.Second), dibs.Wait(30*time.Second))
	closeAll = func() {
		_ = locks.Close() // all leases are released by now
		pool.Close()
	}
	return &account{pool: pool, store: store, locks: locks, guarded: true}, closeAll, nil
}

// prepare creates the tables: the dibs tables, and the account's.
func prepare(ctx context.Context, pool *pgxpool.Pool, store *pgstore.Store) error {
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+table+" (id text PRIMARY KEY, balance integer NOT NULL)")
	return err
}
