// Package repository has a repository as services have it: 42 methods, generic and embedded.
package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/dibslock/dibs/cmd/dibsgen/testdata/shapes/repository/audit"
	"github.com/dibslock/dibs/cmd/dibsgen/testdata/shapes/repository/model"
	"github.com/dibslock/dibs/cmd/dibsgen/testdata/shapes/repository/paging"
)

var errNone = errors.New("no rows")

// key is the name of the lock of a row.
func key[E any, K fmt.Stringer](id K) string {
	return fmt.Sprintf("%T:%s:%s", *new(E), model.Region, id)
}

func keys[E any, K fmt.Stringer](ids []K) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = key[E](id)
	}
	return all
}

// Rows has what all tables have. 8 methods.
type Rows[ID interface {
	comparable
	fmt.Stringer
}, E any] interface {
	Get(ctx context.Context, id ID) (*E, error)

	//dibs:lock key[E](id) wait=3s
	Create(ctx context.Context, id ID, row E) error

	//dibs:lock key[E](id) wait=3s
	Update(ctx context.Context, id ID, change func(*E) error) (*E, error)

	//dibs:lock key[E](id) wait=10s
	Delete(ctx context.Context, id ID) error

	//dibs:lock keys[E](ids)... ttl=1m wait=30s
	DeleteAll(ctx context.Context, ids ...ID) (deleted int, err error)

	//dibs:read "table:"+model.Region
	Export(ctx context.Context, to chan<- E) (int64, error)

	//dibs:write "table:"+model.Region maxhold=10m
	Import(ctx context.Context, from iter.Seq[E]) (added, replaced int, err error)

	// Exists asks no lock.
	Exists(ctx context.Context, id ID) bool
}

// Transactions has methods that need no lock, and one with the transaction. 3 methods.
type Transactions interface {
	Begin(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
	InTransaction(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error

	//dibs:permits "connections" maxConnections wait=1s
	Analyze(context.Context, string) (sql.Result, error)
}

const maxConnections = 4

// Orders is the repository of the orders.
type Orders interface {
	Rows[model.OrderID, model.Order]
	Transactions
	audit.Trail[model.Order]
	paging.Pager[model.OrderID, *model.Order]

	//dibs:lock "customer:"+customer.String(), key[model.Order](id) wait=3s
	Assign(ctx context.Context, id model.OrderID, customer model.CustomerID) error

	//dibs:lock key[model.Order](id)
	AddLine(ctx context.Context, id model.OrderID, line model.Line) (model.Order, error)

	//dibs:lock key[model.Order](id)
	RemoveLine(ctx context.Context, id model.OrderID, product model.ProductID) (model.Order, error)

	//dibs:lock key[model.Order](from), key[model.Order](to) wait=5s
	Merge(ctx context.Context, from, to model.OrderID) error

	//dibs:lock key[model.Order](id) wait=5s
	Split(ctx context.Context, id model.OrderID, at int) (first, second model.Order, err error)

	//dibs:lock key[model.Order](id) ttl=2m maxhold=10m
	Pay(ctx context.Context, id model.OrderID, cents int64, currency string) (receipt string, err error)

	//dibs:lock key[model.Order](id) ttl=2m
	Refund(ctx context.Context, id model.OrderID, cents int64) error

	//dibs:lock key[model.Order](id)
	Ship(ctx context.Context, id model.OrderID, when time.Time) error

	//dibs:lock key[model.Order](id)
	Cancel(ctx context.Context, id model.OrderID, reason error) error

	//dibs:lock fmt.Sprintf("stock:%s", product) attempts=5/100ms
	Reserve(ctx context.Context, product model.ProductID, quantity int) (left int, err error)

	//dibs:lock fmt.Sprintf("stock:%s", product)
	Unreserve(ctx context.Context, product model.ProductID, quantity int) error

	//dibs:once "orders:expire" 15m
	Expire(ctx context.Context) error

	//dibs:once "orders:report:"+day.Format(time.DateOnly) 12h maxhold=24h
	Report(ctx context.Context, day time.Time) (url string, rows int, err error)

	//dibs:once "orders:compact" 1h
	Compact(ctx context.Context) (freed int64, err error)

	//dibs:permits "partner:"+partner 3 wait=20s label=partner
	Push(ctx context.Context, partner string, orders ...model.Order) (map[model.OrderID]error, error)

	//dibs:write "index:orders" maxhold=1h
	Reindex(ctx context.Context) error

	//dibs:read "index:orders"
	Search(ctx context.Context, query string, limit int) ([]model.Order, error)

	ByCustomer(ctx context.Context, customer model.CustomerID) ([]model.Order, error)
	Latest(ctx context.Context) (order model.Order, ok bool, err error)
	Total(ctx context.Context, since time.Time) (cents int64, err error)
	Stats() sql.DBStats
	Subscribe(ctx context.Context, events chan<- model.Order) (stop func(), err error)
	Ping(ctx context.Context) error
	Name() string
}

// Products and Customers have other keys, and fewer methods.
type (
	Products interface {
		Rows[model.ProductID, model.Product]
		audit.Trail[*model.Product]
	}
	Customers = interface {
		Rows[model.CustomerID, model.Customer]
	}
)
