package dibsgoose_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	_ "modernc.org/sqlite"
)

const name = "migrations:orders"

func newFile(t *testing.T) string { return filepath.Join(t.TempDir(), "orders.db") }

// open opens a database file, with its own pool like another process.
func open(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(30000)")
}

func openForTest(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// newRedisClient returns a Client as another process would have.
func newRedisClient(t *testing.T, server *redistest.Server) *dibs.Client {
	t.Helper()
	conn := redistest.Dial(server.Addr())
	locks := dibs.New(redisstore.New(conn))
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
	return locks
}

// steps contains further actions of a Provider's migrations. Each can be nil.
type steps struct {
	first func(ctx context.Context) error // before the first statement
	last  func(ctx context.Context) error // in the last migration's transaction
}

func run(ctx context.Context, step func(ctx context.Context) error) error {
	if step == nil {
		return nil
	}
	return step(ctx)
}

// newProvider returns a Provider with three migrations, which fail if they run twice.
func newProvider(db *sql.DB, locker lock.Locker, do steps) (*goose.Provider, error) {
	options := []goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(
			goose.NewGoMigration(1, &goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error {
				if err := run(ctx, do.first); err != nil {
					return err
				}
				_, err := db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)")
				return err
			}}, nil),
			goose.NewGoMigration(2, &goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error {
				_, err := db.ExecContext(ctx, "INSERT INTO orders VALUES (1, 100)")
				return err
			}}, nil),
			goose.NewGoMigration(3, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, "ALTER TABLE orders ADD COLUMN paid INTEGER"); err != nil {
					return err
				}
				return run(ctx, do.last)
			}}, nil),
		),
	}
	if locker != nil {
		options = append(options, goose.WithLocker(locker))
	}
	return goose.NewProvider(goose.DialectSQLite3, db, nil, options...)
}

func mustProvider(t *testing.T, db *sql.DB, locker lock.Locker, do steps) *goose.Provider {
	t.Helper()
	provider, err := newProvider(db, locker, do)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// wantVersion checks the schema's version, and that each version was recorded once.
func wantVersion(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	var version, records int
	row := db.QueryRowContext(context.Background(), "SELECT MAX(version_id), COUNT(*) FROM goose_db_version")
	if err := row.Scan(&version, &records); err != nil {
		t.Fatal(err)
	}
	if version != want || records != want+1 { // with version 0
		t.Errorf("version %d in %d records, want %d in %d", version, records, want, want+1)
	}
}

func wantError(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, target := range want {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want %v", err, target)
		}
	}
}
