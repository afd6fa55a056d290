package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// Each verb works with the longest prefix.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	dsn := sharedServer(t).DSN("mysql")
	longest := fmt.Sprintf("%047d", prefixes.Add(1))
	for _, prefix := range []string{"", longest, strings.Repeat("ä", 40) + fmt.Sprint(prefixes.Add(1)), fmt.Sprintf("`%d`", prefixes.Add(1))} {
		if err := mysqlstore.CheckTablePrefix(prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
		s := mysqlstore.New(newDB(t, dsn), mysqlstore.TablePrefix(prefix))
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("%q: %v", prefix, err)
			continue
		}
		locks := dibs.New(s, dibs.Timeout(10*time.Second))
		defer locks.Close()
		l, err := locks.Mutex("n").TryLock(t.Context())
		if err != nil {
			t.Errorf("%q: %v", prefix, err)
			continue
		}
		if err := l.Unlock(); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	closed := newDB(t, dsn)
	_ = closed.Close() // its error would mean that something was sent
	for prefix, says := range map[string]string{
		longest + "x":            "48 characters, want up to 47",
		strings.Repeat("ä", 60):  "60 characters, want up to 47",
		"a\x00":                  "NUL",
		"a\xff":                  "UTF-8",
		"locks \U0001f512":       "U+FFFF",
		strings.Repeat("x", 500): "500 characters",
	} {
		err := mysqlstore.New(closed, mysqlstore.TablePrefix(prefix)).Migrate(t.Context())
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: have %v, want ErrInvalid with %s", prefix, err, says)
		}
	}
}

// A pool with one connection is enough, and one store waits for another.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	dsn := sharedServer(t).DSN("mysql")
	prefix := fmt.Sprintf("together_%d_", prefixes.Add(1))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			db := newDB(t, dsn)
			db.SetMaxOpenConns(1)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := mysqlstore.New(db, mysqlstore.TablePrefix(prefix)).Migrate(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A Migrate error names the operation and the prefix, whichever step failed.
func TestMigrateErrors(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	name := fmt.Sprintf("denied_%d", prefixes.Add(1)) // the database and the user: a test may run again
	mustExec(t, newDB(t, server.DSN("mysql")), "CREATE DATABASE "+name, "CREATE USER "+name+"@'127.0.0.1'", "GRANT SELECT ON "+name+".* TO "+name+"@'127.0.0.1'")
	closed := newDB(t, server.DSN("mysql"))
	_ = closed.Close() // the test needs a pool without connections
	for _, c := range []struct {
		store   *mysqlstore.Store
		refused bool
		says    string
	}{
		{mysqlstore.New(newDB(t, strings.Replace(server.DSN(name), "root@", name+"@", 1))), true, "CREATE command denied"},
		{mysqlstore.New(newDB(t, server.DSN(""))), true, "No database selected"},
		{mysqlstore.New(closed), true, "closed"},
	} {
		err := c.store.Migrate(t.Context())
		var u *driver.UnavailableError
		if !errors.As(err, &u) || u.Refused != c.refused || !strings.Contains(err.Error(), c.says) {
			t.Errorf("have %#v, want an UnavailableError with %s", err, c.says)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, `dibs: migrate "dibs_": store unavailable: `) || strings.Count(text, "unavailable") != 1 {
			t.Errorf("have %s", text)
		}
	}
}

// Another program's tables are not taken for dibs' own.
func TestMigrateBesideOtherTables(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("other_%d_", prefixes.Add(1))
	mustExec(t, db, "CREATE TABLE "+prefix+"waiters (name TEXT)")
	s := mysqlstore.New(db, mysqlstore.TablePrefix(prefix))
	want := fmt.Sprintf("has a table %q, but none %q", prefix+"waiters", prefix+"versions")
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("migrate: %v, want %s", err, want)
	}
	if version, err := s.SchemaVersion(t.Context()); version != 0 || err != nil {
		t.Errorf("version %d, %v, want 0", version, err)
	}
}

// A migration interrupted after any statement should continue there.
func TestMigrateGoesOn(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	for _, done := range []int{1, 5, 20} {
		prefix := fmt.Sprintf("cut_%d_", prefixes.Add(1))
		statements, err := mysqlstore.SQL(prefix, 0, mysqlstore.Version)
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, statements[:done]...)
		s := mysqlstore.New(db, mysqlstore.TablePrefix(prefix))
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("after %d statements: %v", done, err)
		}
		if version, err := s.SchemaVersion(t.Context()); version != mysqlstore.Version || err != nil {
			t.Errorf("version %d, %v", version, err)
		}
	}
}

// A migration down should leave nothing.
func TestDown(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := fmt.Sprintf("down_%d_", prefixes.Add(1))
	for _, step := range [][2]int{{0, mysqlstore.Version}, {mysqlstore.Version, 0}, {0, mysqlstore.Version}, {mysqlstore.Version, 0}} {
		statements, err := mysqlstore.SQL(prefix, step[0], step[1])
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, statements...)
		if version, err := mysqlstore.New(db, mysqlstore.TablePrefix(prefix)).SchemaVersion(t.Context()); err != nil || version != step[1] {
			t.Errorf("version %d, %v; want %d", version, err, step[1])
		}
	}
	const left = `SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE LEFT(table_name, CHAR_LENGTH(?)) = ?)
		+ (SELECT COUNT(*) FROM information_schema.routines WHERE LEFT(routine_name, CHAR_LENGTH(?)) = ?)`
	var n int
	if err := db.QueryRowContext(t.Context(), left, prefix, prefix, prefix, prefix).Scan(&n); err != nil || n > 0 {
		t.Errorf("%d objects are left, %v", n, err)
	}
}

func TestSQLOfNoVersion(t *testing.T) {
	for _, step := range [][2]int{{0, mysqlstore.Version + 1}, {-1, 1}} {
		if all, err := mysqlstore.SQL("dibs_", step[0], step[1]); all != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("from %d to %d: %q, %v", step[0], step[1], all, err)
		}
	}
}

// Clients from a release are at work while a later release upgrades the tables. They continue
// beside its clients.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	prefix := mysqlstore.TablePrefix(fmt.Sprintf("upgrade_%d_", prefixes.Add(1)))
	old, later := mysqlstore.New(db, prefix), mysqlstore.New(db, prefix)
	if err := old.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	later.UseNextVersion()
	sqldrill.Upgrade{
		Old: old, Later: later, Migrate: later.MigrateToNext,
		Guard: func(ctx context.Context, until func()) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // without effect after a commit
			err = old.Guard(ctx, tx)
			until()
			return errors.Join(err, tx.Commit())
		},
		ReleaseIn: func(s driver.Store, l *dibs.Lease, released func()) error {
			return releaseIn(l.Context(), s.(*mysqlstore.Store), db, sql.LevelDefault, func(tx *sql.Tx) error {
				released()
				return tx.Commit()
			})
		},
	}.Run(t)
	if version, err := old.SchemaVersion(t.Context()); err != nil || version != mysqlstore.Version+1 {
		t.Errorf("version %d, %v", version, err)
	}
	if err := old.Migrate(t.Context()); err != nil {
		t.Errorf("tables of a later release: %v", err)
	}
}
