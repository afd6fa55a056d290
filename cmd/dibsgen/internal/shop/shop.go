// Package shop is an interface with every kind of directive, for tests of the generated code.
package shop

import "context"

//go:generate go run github.com/dibslock/dibs/cmd/dibsgen

// An Order is an order for Pay.
type Order struct{ ID string }

// A Receipt is the result of Pay.
type Receipt struct{ Number int }

// A Shop has methods under locks.
type Shop interface {
	//dibs:lock "order:"+o.ID wait=3s
	Pay(ctx context.Context, o Order) (Receipt, error)

	//dibs:lock "account:"+from, "account:"+to wait=3s // several names: All
	Transfer(ctx context.Context, from, to string, cents int64) error

	// Archive archives orders.
	//
	//dibs:lock ids... wait=1s
	Archive(ctx context.Context, ids []string) error

	//dibs:read "catalogue"
	Show(ctx context.Context, page int) (string, error)

	//dibs:write "catalogue"
	Publish(ctx context.Context, page int, text string) error

	//dibs:permits "partner" 4 wait=1m
	Upload(ctx context.Context, file string) error

	//dibs:once "report:daily" 1h
	Nightly(ctx context.Context) error

	//dibs:once "stock" 10m maxhold=20m
	Count(ctx context.Context, shelf string) (items int, err error)

	// Stock returns two values.
	//
	//dibs:lock "item:"+item attempts=3/100ms ttl=20s label=stock
	Stock(ctx context.Context, item string) (have, reserved int, err error)

	Ping(ctx context.Context) error
}
