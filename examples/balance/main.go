// Balance changes the balance of an account, with a lock around each read and write.
//
//	go run ./examples/balance                                       in one process
//	DIBS_URL=redis://localhost:6379 go run ./examples/balance       locks on Redis
//	DIBS_URL=postgres://localhost/test go run ./examples/balance    locks in PostgreSQL
//
// Its table rejects late writes by their fence. If the balance is in PostgreSQL, it needs no
// column for that: see the example guard.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/internal/exstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Getenv("DIBS_URL"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "balance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	locks := dibs.New(store, dibs.Wait(3*time.Second))
	defer locks.Close()
	b := &accountService{locks: locks, accounts: &accounts{balance: map[string]int64{"7": 100}}}

	for _, amount := range []int64{+50, -30, -500} {
		balance, err := b.move(ctx, "7", amount)
		switch {
		case errors.Is(err, errFunds):
			fmt.Fprintf(out, "%+5d   %v, balance %d\n", amount, err, balance)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "%+5d   balance %d\n", amount, balance)
		}
	}
	return nil
}

// An accountService changes balances. Many services, on many machines, can share a database.
type accountService struct {
	locks    *dibs.Client
	accounts *accounts
}

var errFunds = errors.New("insufficient funds")

// move adds an amount to an account. It returns the balance, also with errFunds.
func (b *accountService) move(ctx context.Context, account string, amount int64) (int64, error) {
	return dibs.Call(ctx, b.locks.Mutex("balance:"+account), func(ctx context.Context) (int64, error) {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return 0, err
		}
		balance := b.accounts.read(account)
		if balance+amount < 0 {
			return balance, errFunds
		}
		return balance + amount, b.accounts.write(account, balance+amount, fence)
	})
}

// accounts simulates a database: reads and writes are atomic, but a read followed by a
// write is not.
type accounts struct {
	mu      sync.Mutex
	balance map[string]int64
	fence   uint64
}

func (a *accounts) read(account string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance[account]
}

func (a *accounts) write(account string, balance int64, fence uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if fence < a.fence {
		return fmt.Errorf("account %s: write with fence %d rejected: fence %d has written before", account, fence, a.fence)
	}
	a.balance[account], a.fence = balance, fence
	return nil
}
