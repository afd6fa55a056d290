// Fencedsql writes to a SQL database under a lock, so that no late write succeeds. Each
// row stores the fence of its last writer, and a write with a smaller fence changes
// nothing.
//
//	go run ./examples/fencedsql
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/internal/exstore"
	_ "modernc.org/sqlite" // the driver
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Getenv("DIBS_URL"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencedsql:", err)
		os.Exit(1)
	}
}

// schema adds a column to a table: the last write's fence.
const schema = `CREATE TABLE account (
	id      TEXT    PRIMARY KEY,
	balance INTEGER NOT NULL,
	fence   INTEGER NOT NULL DEFAULT 0
)`

func run(ctx context.Context, url string, out io.Writer) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	db, err := openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	locks := dibs.New(store, dibs.Wait(3*time.Second))
	defer locks.Close()

	a := accounts{db}
	balance, err := deposit(ctx, locks, a, "7", 50)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "deposited 50, balance %d\n", balance)

	// A writer stopped before its write, while others continued, is too late.
	const staleFence = 1
	err = a.write(ctx, "7", 0, staleFence)
	fmt.Fprintln(out, "late write:", err)
	if !errors.Is(err, errStale) {
		return fmt.Errorf("a late write was not rejected: %w", err)
	}
	return nil
}

func openDB(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // each connection to :memory: would be a separate database
	for _, statement := range []string{schema, `INSERT INTO account (id, balance) VALUES ('7', 100)`} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

// deposit adds an amount to an account and returns the balance.
func deposit(ctx context.Context, locks *dibs.Client, a accounts, id string, amount int64) (int64, error) {
	return dibs.Call(ctx, locks.Mutex("account:"+id), func(ctx context.Context) (int64, error) {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return 0, err
		}
		balance, err := a.read(ctx, id)
		if err != nil {
			return 0, err
		}
		balance += amount
		return balance, a.write(ctx, id, balance, fence)
	})
}

// accounts is a table whose writes compare the fence.
type accounts struct{ db *sql.DB }

var errStale = errors.New("rejected: another holder of the lock has written since")

func (a accounts) read(ctx context.Context, id string) (balance int64, err error) {
	err = a.db.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = ?`, id).Scan(&balance)
	return balance, err
}

// write changes the row only if no larger fence wrote before. Both happen in a single
// statement, so nothing can come between the check and the write.
func (a accounts) write(ctx context.Context, id string, balance int64, fence uint64) error {
	result, err := a.db.ExecContext(ctx, `UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?`,
		balance, int64(fence), id, int64(fence))
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errStale
}
