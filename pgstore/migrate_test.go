package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Many processes create the schema at once.
func TestMigrate(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := pgstore.New(pool, pgstore.Schema("at once")).Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// Every schema name works, even if it could end a function's body.
func TestSchemaNames(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	for _, schema := range []string{`a$$b`, `$dibs0$ $$`, `say "hi"`, "it's", "dibs.x", "Größe", strings.Repeat("x", 63)} {
		s := newStoreOn(t, pool, pgstore.Schema(schema))
		locks := dibs.New(s, dibs.Timeout(10*time.Second))
		err := locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.GuardPgx(ctx, tx) })
		})
		if err := errors.Join(err, locks.Close()); err != nil {
			t.Errorf("%q: %v", schema, err)
		}
	}
}

// Another program's tables are not taken for dibs' own.
func TestMigrateBesideOtherTables(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	schema := fmt.Sprintf("other_%d", schemas.Add(1))
	if _, err := pool.Exec(t.Context(), fmt.Sprintf("CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.names (name text)", schema)); err != nil {
		t.Fatal(err)
	}
	s := pgstore.New(pool, pgstore.Schema(schema))
	const want = `has a table "names", but none "holders"`
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("migrate: %v, want %s", err, want)
	}
	if version, err := s.SchemaVersion(t.Context()); version != 0 || err != nil {
		t.Errorf("version %d, %v, want 0", version, err)
	}
}

// A role with the right to create tables in a schema needs no right to create schemas.
func TestMigrateIntoASchema(t *testing.T) {
	t.Parallel()
	admin := newPool(t, sharedServer(t).URL())
	name := fmt.Sprintf("owner_%d", schemas.Add(1))
	if _, err := admin.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %[1]s LOGIN; CREATE SCHEMA %[1]s AUTHORIZATION %[1]s", name)); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(sharedServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.User = name
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgstore.New(pool, pgstore.Schema(name)).Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// A migration down should leave nothing in the schema.
func TestDown(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	for _, schema := range []string{fmt.Sprintf("down_%d", schemas.Add(1)), `down "$$"`} {
		for _, step := range [][2]int{{0, pgstore.Version}, {pgstore.Version, 0}, {0, pgstore.Version}, {pgstore.Version, 0}} {
			statements, err := pgstore.SQL(schema, step[0], step[1])
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range statements { // each by itself, as a tool may send them
				if _, err := pool.Exec(t.Context(), text, pgx.QueryExecModeExec); err != nil {
					t.Fatalf("%s: %d to %d: %v", schema, step[0], step[1], err)
				}
			}
			if version, err := pgstore.New(pool, pgstore.Schema(schema)).SchemaVersion(t.Context()); err != nil || version != step[1] {
				t.Errorf("%s: version %d, %v; want %d", schema, version, err, step[1])
			}
		}
		const left = `SELECT (SELECT count(*) FROM pg_class c WHERE c.relnamespace = n.oid) + (SELECT count(*) FROM pg_proc p WHERE p.pronamespace = n.oid)
			+ (SELECT count(*) FROM pg_type t WHERE t.typnamespace = n.oid) FROM pg_namespace n WHERE n.nspname = $1`
		var n int
		if err := pool.QueryRow(t.Context(), left, schema).Scan(&n); err != nil || n > 0 {
			t.Errorf("%s: %d objects are left, %v", schema, n, err)
		}
		if _, err := pool.Exec(t.Context(), "DROP SCHEMA "+pgx.Identifier{schema}.Sanitize()); err != nil {
			t.Error(err)
		}
	}
}

func TestSQLOfNoVersion(t *testing.T) {
	for _, step := range [][2]int{{0, pgstore.Version + 1}, {-1, 1}} {
		if text, err := pgstore.SQL("dibs", step[0], step[1]); text != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("from %d to %d: %q, %v", step[0], step[1], text, err)
		}
	}
}

// Clients from a release are at work while a later release upgrades the schema. They continue
// beside its clients.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	schema := pgstore.Schema(fmt.Sprintf("upgrade_%d", schemas.Add(1)))
	old, later := pgstore.New(pool, schema), pgstore.New(pool, schema)
	if err := old.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	later.UseNextVersion()
	sqldrill.Upgrade{
		Old: old, Later: later, Migrate: later.MigrateToNext,
		Guard: func(ctx context.Context, until func()) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				err := old.GuardPgx(ctx, tx)
				until()
				return err
			})
		},
		ReleaseIn: func(s driver.Store, l *dibs.Lease, released func()) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				released()
				return s.(*pgstore.Store).ReleaseInPgx(l.Context(), tx)
			})
		},
	}.Run(t)
	if version, err := old.SchemaVersion(t.Context()); err != nil || version != pgstore.Version+1 {
		t.Errorf("version %d, %v", version, err)
	}
	if err := old.Migrate(t.Context()); err != nil {
		t.Errorf("a schema of a later release: %v", err)
	}
}
