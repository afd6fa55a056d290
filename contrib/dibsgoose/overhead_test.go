package dibsgoose_test

import (
	"context"
	"database/sql"
	"testing"
	"testing/fstest"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgoose"
	"github.com/dibslock/dibs/memstore"
	"github.com/pressly/goose/v3"
)

// BenchmarkOverhead measures a migration up and down, in an in-memory database: without a lock,
// with a Locker, and with the Provider in Do. Up and Down lock once each.
func BenchmarkOverhead(b *testing.B) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	mutex := locks.Mutex(name)
	b.Run("bare", func(b *testing.B) {
		p := newOneMigration(b)
		measureMigrations(b, p.Up, p.Down)
	})
	b.Run("dibs", func(b *testing.B) {
		p := newOneMigration(b, goose.WithLocker(dibsgoose.New(locks, name)))
		measureMigrations(b, p.Up, p.Down)
	})
	b.Run("do", func(b *testing.B) {
		p := newOneMigration(b)
		measureMigrations(b,
			func(ctx context.Context) ([]*goose.MigrationResult, error) { return dibs.Call(ctx, mutex, p.Up) },
			func(ctx context.Context) (*goose.MigrationResult, error) { return dibs.Call(ctx, mutex, p.Down) })
	})
}

func newOneMigration(b *testing.B, options ...goose.ProviderOption) *goose.Provider {
	b.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1) // each connection has its own database
	b.Cleanup(func() { db.Close() })
	migrations := fstest.MapFS{"00001_orders.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE orders (id INTEGER PRIMARY KEY);\n-- +goose Down\nDROP TABLE orders;\n")}}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, migrations, options...)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func measureMigrations(b *testing.B, up func(context.Context) ([]*goose.MigrationResult, error), down func(context.Context) (*goose.MigrationResult, error)) {
	b.ReportAllocs()
	for b.Loop() {
		if results, err := up(b.Context()); err != nil || len(results) != 1 {
			b.Fatalf("up: %d migrations, %v", len(results), err)
		}
		if _, err := down(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
