//go:build unix

package main

import (
	"context"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/internal/exstore"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const table = exstore.Schema + ".account"

// An account is a row with a balance.
type account struct {
	pool    *pgxpool.Pool
	store   *pgstore.Store
	locks   *dibs.Client
	guarded bool // false only to show the consequences
}

// add changes the balance under the account's lock, and returns it.
func (a *account) add(ctx context.Context, amount int64) (int64, error) {
	return dibs.Call(ctx, a.locks.Mutex("account:7"), func(ctx context.Context) (int64, error) {
		balance, err := a.read(ctx)
		if err != nil {
			return 0, err
		}
		return balance + amount, a.write(ctx, balance+amount)
	})
}

func (a *account) read(ctx context.Context) (balance int64, err error) {
	err = a.pool.QueryRow(ctx, "SELECT balance FROM "+table+" WHERE id = '7'").Scan(&balance)
	return balance, err
}

// write writes the balance in a transaction guarded by the lock: ctx is the callback's.
func (a *account) write(ctx context.Context, balance int64) error {
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		if a.guarded {
			if err := a.store.GuardPgx(ctx, tx); err != nil {
				return err // dibs.ErrLost: nothing is written
			}
		}
		// From here to the commit, nobody else acquires the lock.
		_, err := tx.Exec(ctx, "UPDATE "+table+" SET balance = $1 WHERE id = '7'", balance)
		return err
	})
}

// reset sets the balance to 100.
func (a *account) reset(ctx context.Context) error {
	_, err := a.pool.Exec(ctx, "INSERT INTO "+table+" VALUES ('7', 100) ON CONFLICT (id) DO UPDATE SET balance = 100")
	return err
}
