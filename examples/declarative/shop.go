package main

import "context"

//go:generate go run github.com/dibslock/dibs/cmd/dibsgen

// A Shop takes payments and keeps balances. Each method runs under the lock that its
// directive names: LockShop is generated from them.
type Shop interface {
	// Pay charges an order, unless it is paid already.
	//
	//dibs:lock orderLock(order) wait=30s
	Pay(ctx context.Context, order string) error

	// Deposit adds to the balance of an account, and returns the new balance.
	//
	//dibs:lock balanceLock(account) wait=30s
	Deposit(ctx context.Context, account string, cents int64) (balance int64, err error)
}

// The directives and the implementation name the locks by the same functions.
func orderLock(order string) string     { return "order:pay:" + order }
func balanceLock(account string) string { return "balance:" + account }
