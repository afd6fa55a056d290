package dibsgoose_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing/fstest"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgoose"
	"github.com/dibslock/dibs/memstore"
	"github.com/pressly/goose/v3"
)

// Each replica does this when it starts.
func Example() {
	migrations := fstest.MapFS{"00001_orders.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE orders (id INTEGER PRIMARY KEY);\n")}}
	db, err := sql.Open("sqlite", "file:orders?mode=memory&cache=shared")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	locks := dibs.New(memstore.New()) // or goredisstore.New(rdb)
	defer locks.Close()

	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations,
		goose.WithLocker(dibsgoose.New(locks, "migrations:orders")))
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := provider.Up(context.Background())
	if err != nil { // errors.Is(err, dibs.ErrLost): the lock was lost, see the package comment
		fmt.Println(err)
		return
	}
	fmt.Println(len(results), "migration applied")
	// Output: 1 migration applied
}

// Around the Provider, without a Locker, losing the lease stops the migration.
func Example_do() {
	migrations := fstest.MapFS{"00001_orders.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE orders (id INTEGER PRIMARY KEY);\n")}}
	db, err := sql.Open("sqlite", "file:stopped?mode=memory&cache=shared")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations)
	if err != nil {
		fmt.Println(err)
		return
	}

	results, err := dibs.Call(context.Background(), locks.Mutex("migrations:orders"), provider.Up)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(results), "migration applied")
	// Output: 1 migration applied
}
