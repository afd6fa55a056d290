package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/go-sql-driver/mysql"
)

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// newTable creates a program's table, with 50 rows.
func newTable(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	name = fmt.Sprintf("accounts_%d", prefixes.Add(1))
	mustExec(t, db, "DROP TABLE IF EXISTS "+name, "CREATE TABLE "+name+" (id INT PRIMARY KEY, balance INT NOT NULL) ENGINE = InnoDB",
		"INSERT INTO "+name+" SELECT seq, 0 FROM seq_1_to_50")
	return name
}

// beginAt begins a transaction.
func beginAt(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // without effect after a commit
	return tx
}

func mustExecIn(t *testing.T, tx *sql.Tx, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// next is another client's request for the name n.
var next = driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}

// revoke ends a lease on n. Its holder is not notified.
func revoke(t *testing.T, s *mysqlstore.Store, l *dibs.Lease) {
	t.Helper()
	if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: l.Fence()}); err != nil {
		t.Fatal(err)
	}
}

// Savepoints should not end a guard, with a single exception: a rollback to a savepoint before the
// first used table ends the server's state for the transaction. Then another Guard call reports the
// loss.
func TestGuardAndSavepoints(t *testing.T) {
	t.Parallel()
	const use, guard, write = "SELECT COUNT(*) FROM accounts", "guard", "UPDATE accounts SET balance = 1 WHERE id = 1"
	cases := []struct {
		name   string
		steps  []string
		undone bool
	}{
		{"no savepoint", []string{guard, write}, false},
		{"after the guard", []string{guard, "SAVEPOINT a", write, "ROLLBACK TO a"}, false},
		{"around the guard", []string{use, "SAVEPOINT a", guard, write}, false},
		{"around the guard, rolled back", []string{use, "SAVEPOINT a", guard, write, "ROLLBACK TO a"}, false},
		{"around the guard, rolled back after a write", []string{write, "SAVEPOINT a", guard, "ROLLBACK TO a", write}, false},
		{"around the guard, released", []string{use, "SAVEPOINT a", guard, write, "RELEASE SAVEPOINT a"}, false},
		{"first, released", []string{"SAVEPOINT a", guard, write, "RELEASE SAVEPOINT a"}, false},
		{"first, rolled back", []string{"SAVEPOINT a", guard, write, "ROLLBACK TO a"}, true},
	}
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			s, locks, db := newClient(t)
			accounts := newTable(t, db)
			for kind, lock := range sqldrill.Locking {
				for _, c := range cases {
					t.Run(kind+"/"+c.name, func(t *testing.T) {
						l, err := lock(t.Context(), locks, dibs.TTL(time.Minute), dibs.NoRenew())
						if err != nil {
							t.Fatal(err)
						}
						defer func() { _ = l.Unlock() }() // it was lost
						stopped := context.WithoutCancel(l.Context())
						tx := beginAt(t, db, level)
						for _, step := range c.steps {
							if step != guard {
								mustExecIn(t, tx, strings.ReplaceAll(step, "accounts", accounts))
							} else if err := s.Guard(stopped, tx); err != nil {
								t.Fatal(err)
							}
						}
						revoke(t, s, l)
						if reply, err := s.Acquire(t.Context(), next); err != nil || reply.Held != c.undone {
							t.Errorf("%+v, %v before the end of the transaction, want held %v", reply, err, c.undone)
						}
						if err := s.Guard(stopped, tx); errors.Is(err, dibs.ErrLost) != c.undone || !c.undone && err != nil {
							t.Errorf("%v from another call of Guard, want ErrLost %v", err, c.undone)
						}
						if err := tx.Rollback(); err != nil {
							t.Fatal(err)
						}
						if reply, err := s.Acquire(t.Context(), next); err != nil || !reply.Held {
							t.Errorf("%+v, %v after the transaction, want it held", reply, err)
						}
						if err := s.Cancel(t.Context(), next); err != nil {
							t.Fatal(err)
						}
					})
				}
			}
		})
	}
}

// A guard races its lease's end. While a guarded transaction is open, nobody else should be granted
// the name. This holds at each isolation level. The snapshot can be older than the lease's end, and
// the next lease can have the same token.
func TestGuardRacesRevoke(t *testing.T) {
	t.Parallel()
	guards := 300
	if os.Getenv("DIBS_LONG") == "1" {
		guards = 3000
	}
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			s, locks, db := newClient(t)
			accounts := newTable(t, db)
			sqldrill.WantNoneStale(t, guards, func(i int) string {
				before := ""
				if i%2 == 0 {
					before = "SELECT COUNT(*) FROM " + accounts
				}
				token := []string{"t", "mine"}[i/2%2]
				return raceRevoke(t, s, locks, db, level, before, token)
			})
		})
	}
}

// raceRevoke returns a guard's outcome. before is its transaction's first statement, or empty, and
// token is the next holder's.
func raceRevoke(t *testing.T, s *mysqlstore.Store, locks *dibs.Client, db *sql.DB, level sql.IsolationLevel, before, token string) string {
	t.Helper()
	l, err := locks.Mutex("n").Lock(t.Context(), dibs.OwnerToken("mine"), dibs.TTL(time.Minute), dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }() // it was lost
	tx := beginAt(t, db, level)
	if before != "" {
		mustExecIn(t, tx, before)
	}
	next := next
	next.Token = token
	others := make(chan bool)
	go func() {
		granted, err := sqldrill.RevokeAndAcquire(t.Context(), s, l, next)
		if err != nil {
			t.Error(err)
		}
		others <- granted
	}()
	err = s.Guard(context.WithoutCancel(l.Context()), tx) // the revocation ends the context
	if err != nil {
		_ = tx.Rollback() // at once: others may wait for it
	}
	granted := <-others
	if err == nil {
		err = tx.Rollback()
		if err == nil && granted {
			err = errStale
		}
	}
	if err := s.Cancel(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	switch {
	case errors.Is(err, errStale):
		return "stale"
	case errors.Is(err, dibs.ErrLost):
		return "lost"
	case err != nil:
		t.Fatal(err)
	}
	return "guarded"
}

var errStale = errors.New("a guarded transaction was not alone")

// At repeatable read, a snapshot older than the lease does not show the last holder's writes. It
// should be refused, and not count as a loss.
func TestGuardWithAnOldSnapshot(t *testing.T) {
	t.Parallel()
	for kind, lock := range sqldrill.Locking {
		for _, level := range levels {
			t.Run(fmt.Sprintf("%s/%s", kind, level), func(t *testing.T) {
				t.Parallel()
				s, locks, db := newClient(t)
				use := "SELECT COUNT(*) FROM " + newTable(t, db)
				for _, what := range []string{"the name is new", "the lease is younger"} {
					tx := beginAt(t, db, level)
					mustExecIn(t, tx, use)
					l, err := lock(t.Context(), locks)
					if err != nil {
						t.Fatal(err)
					}
					err = s.Guard(l.Context(), tx)
					if level == sql.LevelRepeatableRead && (!errors.Is(err, dibs.ErrInvalid) || errors.Is(err, dibs.ErrLost)) {
						t.Errorf("%s: %v, want ErrInvalid", what, err)
					}
					if level != sql.LevelRepeatableRead && err != nil {
						t.Errorf("%s: %v", what, err)
					}
					if err := errors.Join(tx.Rollback(), l.Unlock()); err != nil {
						t.Error(err)
					}
				}
				l, err := lock(t.Context(), locks, dibs.TTL(time.Minute), dibs.NoRenew())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Unlock() }() // it was lost
				stopped := context.WithoutCancel(l.Context())
				tx := beginAt(t, db, level)
				mustExecIn(t, tx, use)
				if err := l.Extend(t.Context(), time.Hour); err != nil {
					t.Fatal(err)
				}
				revoke(t, s, l)
				if err := s.Guard(stopped, tx); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("%v after the loss, want ErrLost", err)
				}
			})
		}
	}
}

// With innodb_snapshot_isolation, the default in later versions, the server refuses a guard with a
// snapshot from before the lease's end. It rolls the transaction back.
func TestGuardWithSnapshotIsolation(t *testing.T) {
	t.Parallel()
	dsn := sharedServer(t).DSN("mysql")
	var known bool
	const text = "SELECT COUNT(*) > 0 FROM information_schema.system_variables WHERE variable_name = 'innodb_snapshot_isolation'"
	if err := newDB(t, dsn).QueryRowContext(t.Context(), text).Scan(&known); err != nil {
		t.Fatal(err)
	}
	if !known {
		t.Skip("this version has no innodb_snapshot_isolation")
	}
	db := newDB(t, dsn+"&innodb_snapshot_isolation=ON")
	s := newStoreOn(t, db)
	locks := dibs.New(s, dibs.Timeout(10*time.Second))
	defer locks.Close()
	l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(time.Minute), dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	stopped := context.WithoutCancel(l.Context())
	tx := beginAt(t, db, sql.LevelRepeatableRead)
	mustExecIn(t, tx, "SELECT COUNT(*) FROM "+newTable(t, db))
	if err := s.Guard(stopped, tx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	tx = beginAt(t, db, sql.LevelRepeatableRead)
	mustExecIn(t, tx, "SELECT COUNT(*) FROM "+newTable(t, db))
	revoke(t, s, l)
	var failed *mysql.MySQLError
	if err := s.Guard(stopped, tx); !errors.As(err, &failed) || failed.Number != 1020 {
		t.Errorf("%v after the loss, want the error 1020", err)
	}
	if err := s.Guard(stopped, tx); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("%v from another call of Guard, want ErrInvalid", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if err := s.Guard(stopped, beginAt(t, db, sql.LevelRepeatableRead)); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("%v in a new transaction, want ErrLost", err)
	}
	_ = l.Unlock() // it was lost
}
