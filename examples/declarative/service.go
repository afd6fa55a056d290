package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errPaid = errors.New("already paid")

// service is a machine's Shop. It reads, then works, then writes: the usual form, and wrong without
// a lock.
type service struct {
	data *database
	// holds asserts that a method was called through the decorator: Client.Holds. A call around it
	// fails then, and does not lose an update.
	holds func(ctx context.Context, name string) error
}

// Pay implements Shop.
func (s *service) Pay(ctx context.Context, order string) error {
	if err := s.holds(ctx, orderLock(order)); err != nil {
		return err
	}
	if s.data.paid(order) {
		return errPaid
	}
	if err := work(ctx); err != nil {
		return err
	}
	s.data.addCharge(order)
	return nil
}

// Deposit implements Shop.
func (s *service) Deposit(ctx context.Context, account string, cents int64) (int64, error) {
	if err := s.holds(ctx, balanceLock(account)); err != nil {
		return 0, err
	}
	balance := s.data.balance(account)
	if err := work(ctx); err != nil {
		return balance, err
	}
	balance += cents
	s.data.setBalance(account, balance)
	return balance, nil
}

// work stands for a call to the bank, which takes a while.
func work(ctx context.Context) error {
	select {
	case <-time.After(time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// database stands for a database used by all machines. Each read and each write is atomic. A read
// followed by a write is not.
type database struct {
	mu       sync.Mutex
	charges  map[string]int
	balances map[string]int64
}

func newDatabase() *database {
	return &database{charges: map[string]int{}, balances: map[string]int64{}}
}

func (d *database) paid(order string) bool { return d.chargesOf(order) > 0 }

func (d *database) chargesOf(order string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.charges[order]
}

func (d *database) addCharge(order string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.charges[order]++
}

func (d *database) balance(account string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.balances[account]
}

func (d *database) setBalance(account string, balance int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.balances[account] = balance
}
