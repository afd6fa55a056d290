package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/go-sql-driver/mysql"
)

func TestGuardRefusesAReadOnlyTransaction(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	err := locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		if err := s.Guard(ctx, tx); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
		return errors.Join(tx.Rollback(), locks.Holds(ctx, "n"))
	})
	if err != nil {
		t.Error(err)
	}
}

// Guard notices that a statement ended the transaction, although database/sql did not.
func TestGuardNoticesTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			s, locks, db := newClient(t)
			accounts := newTable(t, db)
			l, err := locks.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				statements string
				ends       bool
				after      string
			}{
				{"UPDATE accounts SET balance = 1 WHERE id = 1", false, ""},
				{"CREATE TEMPORARY TABLE accounts_t (id INT)", false, ""},
				{"SET autocommit = 1", false, ""},
				{"ALTER TABLE accounts COMMENT 'new'", true, ""},
				{"CREATE TABLE IF NOT EXISTS accounts_2 (id INT)", true, ""},
				{"LOCK TABLES accounts WRITE", true, "UNLOCK TABLES"},
				{"SET autocommit = 0; SET autocommit = 1", true, ""},
				{"COMMIT", true, ""},
				{"ROLLBACK", true, ""},
				{"COMMIT; XA START 'accounts'", true, "XA END 'accounts'; XA ROLLBACK 'accounts'"},
			} {
				tx := beginAt(t, db, level)
				exec := func(statements string) {
					if statements != "" {
						mustExecIn(t, tx, strings.Split(strings.ReplaceAll(statements, "accounts", accounts), "; ")...)
					}
				}
				if err := s.Guard(l.Context(), tx); err != nil {
					t.Fatal(err)
				}
				exec(c.statements)
				if err := s.Guard(l.Context(), tx); errors.Is(err, dibs.ErrInvalid) != c.ends || !c.ends && err != nil {
					t.Errorf("%s: %v from another call of Guard, want ErrInvalid %v", c.statements, err, c.ends)
				}
				exec(c.after)
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A second transaction begins inside the first. Another Guard call is for the second: it reports
// whether somebody else was granted the name since the first call.
func TestGuardOfASecondTransaction(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		for _, lost := range []bool{false, true} {
			t.Run(level.String(), func(t *testing.T) {
				t.Parallel()
				s, locks, db := newClient(t)
				l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(time.Minute), dibs.NoRenew())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Unlock() }() // it was lost
				stopped := context.WithoutCancel(l.Context())
				tx := beginAt(t, db, level)
				if err := s.Guard(stopped, tx); err != nil {
					t.Fatal(err)
				}
				mustExecIn(t, tx, "START TRANSACTION")
				if lost {
					revoke(t, s, l)
				}
				if err := s.Guard(stopped, tx); errors.Is(err, dibs.ErrLost) != lost || !lost && err != nil {
					t.Errorf("%v, want ErrLost %v", err, lost)
				}
				if !lost {
					revoke(t, s, l)
					if reply, err := s.Acquire(t.Context(), next); err != nil || reply.Held {
						t.Errorf("%+v, %v while a transaction is guarded, want it busy", reply, err)
					}
				}
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				if reply, err := s.Acquire(t.Context(), next); err != nil || !reply.Held {
					t.Errorf("%+v, %v after the transaction, want it held", reply, err)
				}
			})
		}
	}
}

// A deadlock rolls back the guarded transaction, because it changed less than the other. Guard
// should notice it.
func TestGuardNoticesADeadlock(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	accounts := newTable(t, db)
	l, err := locks.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, other := beginGuarded(l.Context(), t, s, db), beginAt(t, db, sql.LevelDefault)
	first, rest := "UPDATE "+accounts+" SET balance = balance + 1 WHERE id = 1", "UPDATE "+accounts+" SET balance = balance + 1 WHERE id > 1"
	mustExecIn(t, tx, first)
	mustExecIn(t, other, rest)
	done := make(chan error)
	go func() {
		_, err := other.ExecContext(t.Context(), first)
		done <- err
	}()
	var failed *mysql.MySQLError
	if _, err := tx.ExecContext(t.Context(), rest); !errors.As(err, &failed) || failed.Number != 1213 {
		t.Errorf("%v, want the error 1213", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := other.Rollback(); err != nil {
		t.Error(err)
	}
	if err := s.Guard(l.Context(), tx); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("%v after a deadlock, want ErrInvalid", err)
	}
	mustExecIn(t, tx, first) // committed by itself; on MariaDB 11.4 it begins another transaction
	guarded := s.Guard(l.Context(), tx)
	if err := errors.Join(tx.Rollback(), l.Unlock()); err != nil {
		t.Error(err)
	}
	var committed bool
	if err := db.QueryRowContext(t.Context(), "SELECT balance > 0 FROM "+accounts+" WHERE id = 1").Scan(&committed); err != nil {
		t.Fatal(err)
	}
	if committed != errors.Is(guarded, dibs.ErrInvalid) || !committed && guarded != nil {
		t.Errorf("%v; a statement after the deadlock was committed by itself: %t", guarded, committed)
	}
}

// Without innodb_rollback_on_timeout, a lock not granted in time ends the statement only. With
// it, the transaction is rolled back.
func TestGuardAfterALockTimeout(t *testing.T) {
	t.Parallel()
	sharedServer(t) // or skip
	for option, ends := range map[string]bool{"--innodb-rollback-on-timeout=OFF": false, "--innodb-rollback-on-timeout=ON": true} {
		server, err := mysqltest.Start(option)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		db := newDB(t, server.DSN("mysql"))
		s := newStoreOn(t, db)
		locks := dibs.New(s, dibs.Timeout(10*time.Second))
		accounts := newTable(t, db)
		l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(time.Minute), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		stopped := context.WithoutCancel(l.Context())
		tx, other := beginGuarded(stopped, t, s, db), beginAt(t, db, sql.LevelDefault)
		write := "UPDATE " + accounts + " SET balance = 1 WHERE id = 1"
		mustExecIn(t, other, write)
		mustExecIn(t, tx, "SAVEPOINT a", "SET innodb_lock_wait_timeout = 1")
		var failed *mysql.MySQLError
		if _, err := tx.ExecContext(t.Context(), write); !errors.As(err, &failed) || failed.Number != 1205 {
			t.Errorf("%s: %v, want the error 1205", option, err)
		}
		revoke(t, s, l)
		if reply, err := s.Acquire(t.Context(), next); err != nil || reply.Held != ends {
			t.Errorf("%s: %+v, %v, want held %v", option, reply, err, ends)
		}
		if err := s.Guard(stopped, tx); errors.Is(err, dibs.ErrInvalid) != ends || !ends && err != nil {
			t.Errorf("%s: %v, want ErrInvalid %v", option, err, ends)
		}
		if err := errors.Join(tx.Rollback(), other.Rollback()); err != nil {
			t.Error(err)
		}
		_ = l.Unlock() // it was lost
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A caller's token may belong to another lease now. The guard should be for its own lease.
func TestGuardComparesTheFence(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		for _, ended := range []bool{false, true} {
			t.Run(level.String(), func(t *testing.T) {
				t.Parallel()
				s, locks, db := newClient(t)
				l, err := locks.Mutex("n").Lock(t.Context(), dibs.OwnerToken("mine"), dibs.TTL(time.Minute), dibs.NoRenew())
				if err != nil {
					t.Fatal(err)
				}
				stopped := context.WithoutCancel(l.Context())
				if ended {
					revoke(t, s, l)
				}
				again := next
				again.Token = "mine"
				if reply, err := s.Acquire(t.Context(), again); err != nil || !reply.Held {
					t.Fatalf("%+v, %v, want it held", reply, err)
				}
				tx := beginAt(t, db, level)
				if err := s.Guard(stopped, tx); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("ended %v: %v for a lease whose token has another lease, want ErrLost", ended, err)
				}
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
				_ = l.Unlock() // it was lost
			})
		}
	}
}

// A resized lease guards with its new fence, and a nested call's lease with its caller's.
func TestGuardOfAChangedLease(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	guard := func(ctx context.Context) error { return beginGuarded(ctx, t, s, db).Rollback() }
	sqldrill.GuardsChangedLeases(t, locks, guard)
}

// A shared lease with a caller's token was released while a transaction guarded it. Acquiring it
// again should wait for the transaction.
func TestTokenIsUsedAgainDuringAGuard(t *testing.T) {
	t.Parallel()
	for _, reserve := range []time.Duration{0, time.Minute} {
		s, locks, db := newClient(t)
		shared := driver.AcquireRequest{Name: "n", Token: "mine", Client: "c", TTL: time.Minute, Weight: 1, Limit: 5}
		release := driver.ReleaseRequest{Name: "n", Token: "mine", Reserve: reserve}
		l, err := locks.Semaphore("n", 5).Permits(1).Lock(t.Context(), dibs.OwnerToken("mine"))
		if err != nil {
			t.Fatal(err)
		}
		stopped := context.WithoutCancel(l.Context())
		tx := beginGuarded(stopped, t, s, db)
		if held, err := s.Release(t.Context(), release); err != nil || !held {
			t.Fatalf("reserve %v: %v, %v, want it released", reserve, held, err)
		}
		reply, err := s.Acquire(t.Context(), shared)
		if err != nil || reply.Held {
			t.Errorf("reserve %v: %+v, %v while a transaction is guarded, want it busy", reserve, reply, err)
		}
		if reserve == 0 && reply.Remaining > time.Second {
			t.Errorf("%+v while a transaction is guarded, want it busy for a short time", reply)
		}
		other := shared
		other.Token = "other"
		if reply, err := s.Acquire(t.Context(), other); err != nil || !reply.Held {
			t.Errorf("%+v, %v of another permit, want it held", reply, err)
		}
		queued := shared
		queued.Queue = true
		if reply, err := s.Acquire(t.Context(), queued); err != nil || reply.Position != 1 {
			t.Errorf("reserve %v: %+v, %v, want it queued", reserve, reply, err)
		}
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "other"}); err != nil { // it serves the queue
			t.Errorf("reserve %v: %v", reserve, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if reply, err := s.Acquire(t.Context(), queued); err != nil || !reply.Held {
			t.Errorf("reserve %v: %+v, %v after the transaction, want it held", reserve, reply, err)
		}
		tx = beginAt(t, db, sql.LevelDefault)
		if err := s.Guard(stopped, tx); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("reserve %v: %v for the lease that was released, want ErrLost", reserve, err)
		}
		_ = tx.Rollback()
		for range 2 { // the later lease, then the reserved name
			if _, err := s.Release(t.Context(), release); err != nil {
				t.Errorf("reserve %v: %v", reserve, err)
			}
		}
		_ = l.Unlock() // it was released
	}
}

// The end of a token's reservation does not end its later lease's guards.
func TestGuardBesideAReservedLease(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	release := driver.ReleaseRequest{Name: "n", Token: "mine", Reserve: time.Minute}
	first := driver.AcquireRequest{Name: "n", Token: "mine", Client: "c", TTL: time.Minute, Weight: 1, Limit: 5}
	reply, err := s.Acquire(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := s.Release(t.Context(), release); err != nil || !held {
		t.Fatalf("%v, %v, want it released", held, err)
	}
	l, err := locks.Semaphore("n", 5).Permits(1).Lock(t.Context(), dibs.OwnerToken("mine"), dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	stopped := context.WithoutCancel(l.Context())
	if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: reply.Fence}); err != nil {
		t.Fatal(err)
	}
	tx := beginGuarded(stopped, t, s, db)
	if held, err := s.Release(t.Context(), release); err != nil || !held {
		t.Errorf("%v, %v while a transaction is guarded, want it released", held, err)
	}
	all := first
	all.Token, all.Weight = "t", all.Limit
	if reply, err := s.Acquire(t.Context(), all); err != nil || reply.Held {
		t.Errorf("%+v, %v, want it busy", reply, err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	_ = l.Unlock() // it was released
}
