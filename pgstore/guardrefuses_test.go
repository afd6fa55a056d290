package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/jackc/pgx/v5"
)

// A guard outside a savepoint survives its rollback. Inside, it would not, so it is refused.
func TestGuardAndSavepoints(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s, locks, pool := newClient(t)
			l, err := locks.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx := l.Context()
			err = pgx.BeginFunc(t.Context(), beginAt(t, pool, level, false), func(inner pgx.Tx) error { return s.GuardPgx(ctx, inner) })
			if !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("%v in a nested transaction, want ErrInvalid", err)
			}
			tx := beginAt(t, pool, level, false)
			if err := pgx.BeginFunc(t.Context(), tx, func(pgx.Tx) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if err := s.GuardPgx(ctx, tx); err != nil {
				t.Fatal(err)
			}
			failed := errors.New("failed")
			if err := pgx.BeginFunc(t.Context(), tx, func(pgx.Tx) error { return failed }); !errors.Is(err, failed) {
				t.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
			if l, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(sqldrill.TTL)); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("%v, %v after the rollback of a savepoint, want ErrBusy", l, err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGuardOfDatabaseSQLRefusesASavepoint(t *testing.T) {
	t.Parallel()
	s, locks, _ := newClient(t)
	db, err := sql.Open("pgx", sharedServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "SAVEPOINT s"); err != nil {
			return err
		}
		if err := s.Guard(ctx, tx); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v after SAVEPOINT, want ErrInvalid", err)
		}
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO s; RELEASE s"); err != nil {
			return err
		}
		return s.Guard(ctx, tx)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGuardRefusesAReadOnlyTransaction(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	err := locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		for what, tie := range map[string]func(context.Context, pgx.Tx) error{"Guard": s.GuardPgx, "ReleaseIn": s.ReleaseInPgx} {
			err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return tie(ctx, tx) })
			if !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		return locks.Holds(ctx, "n")
	})
	if err != nil {
		t.Error(err)
	}
}

// A caller's token may belong to another lease now. The guard should be for its own lease.
func TestGuardComparesTheFence(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s, locks, pool := newClient(t)
			l, err := locks.Mutex("n").Lock(t.Context(), dibs.OwnerToken("mine"), dibs.TTL(time.Minute), dibs.NoRenew())
			if err != nil {
				t.Fatal(err)
			}
			stopped := context.WithoutCancel(l.Context())
			if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: l.Fence()}); err != nil {
				t.Fatal(err)
			}
			again := driver.AcquireRequest{Name: "n", Token: "mine", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
			if reply, err := s.Acquire(t.Context(), again); err != nil || !reply.Held {
				t.Fatalf("%+v, %v, want it held", reply, err)
			}
			if err := s.GuardPgx(stopped, beginAt(t, pool, level, false)); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("%v for a lease whose token has another lease, want ErrLost", err)
			}
			_ = l.Unlock() // it was lost
		})
	}
}

// A resized lease guards with its new fence, and a nested call's lease with its caller's.
func TestGuardOfAChangedLease(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	guard := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.GuardPgx(ctx, tx) })
	}
	sqldrill.GuardsChangedLeases(t, locks, guard)
}

// A shared lease with a caller's token was released while a transaction guarded it. Acquiring it
// again waits for the transaction.
func TestTokenIsUsedAgainDuringAGuard(t *testing.T) {
	t.Parallel()
	for _, reserve := range []time.Duration{0, time.Minute} {
		s, locks, pool := newClient(t)
		shared := driver.AcquireRequest{Name: "n", Token: "mine", Client: "c", TTL: time.Minute, Weight: 1, Limit: 5}
		release := driver.ReleaseRequest{Name: "n", Token: "mine", Reserve: reserve}
		l, err := locks.Semaphore("n", 5).Permits(1).Lock(t.Context(), dibs.OwnerToken("mine"))
		if err != nil {
			t.Fatal(err)
		}
		tx := beginGuarded(l.Context(), t, s, pool)
		if held, err := s.Release(t.Context(), release); err != nil || !held {
			t.Fatalf("reserve %v: %v, %v, want it released", reserve, held, err)
		}
		reply, err := s.Acquire(t.Context(), shared)
		if err != nil {
			t.Errorf("reserve %v: %v while a transaction is guarded", reserve, err)
		}
		if reserve == 0 && (reply.Held || reply.Remaining > time.Second) {
			t.Errorf("%+v while a transaction is guarded, want it busy for a short time", reply)
		}
		queued := shared
		queued.Queue = true
		if _, err := s.Acquire(t.Context(), queued); err != nil {
			t.Errorf("reserve %v: queue: %v", reserve, err)
		}
		other := shared
		other.Token = "other"
		if reply, err := s.Acquire(t.Context(), other); err != nil {
			t.Errorf("%+v, %v of another permit", reply, err)
		}
		for _, r := range []driver.ReleaseRequest{{Name: "n", Token: "other"}, release} { // they serve the queue
			if _, err := s.Release(t.Context(), r); err != nil {
				t.Errorf("reserve %v: release of %s: %v", reserve, r.Token, err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if reply, err := s.Acquire(t.Context(), shared); err != nil || !reply.Held {
			t.Errorf("reserve %v: %+v, %v after the transaction, want it held", reserve, reply, err)
		}
		if err := s.Cancel(t.Context(), shared); err != nil {
			t.Error(err)
		}
		state, err := s.Inspect(t.Context(), "n")
		if err != nil || reserve == 0 && state.Holding > 0 {
			t.Errorf("%+v, %v at the end", state, err)
		}
		_ = l.Unlock() // it was released
	}
}

// A prepared transaction should be guarded until it is committed. After ReleaseIn it cannot be
// prepared, with or without waiters.
func TestPreparedTransactions(t *testing.T) {
	t.Parallel()
	sharedServer(t) // or skip
	server, err := pgtest.Start("max_prepared_transactions=5")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	pool := newPool(t, server.URL())
	s := newStoreOn(t, pool)
	locks := dibs.New(s, dibs.Timeout(10*time.Second))
	defer locks.Close()
	l, err := locks.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx := l.Context()
	next := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
	for _, text := range []string{"PREPARE TRANSACTION 'released'", "PREPARE/**/TRANSACTION 'released'", "PREPARE -- it\nTRANSACTION 'released'"} {
		for range 2 { // without and with a waiter
			tx := beginAt(t, pool, pgx.ReadCommitted, false)
			if err := s.ReleaseInPgx(ctx, tx); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), text); codeOf(err) != "0A000" {
				t.Errorf("%q after ReleaseIn: %v, want the SQLSTATE 0A000", text, err)
			}
			_ = tx.Rollback(t.Context())
			if reply, err := s.Acquire(t.Context(), next); err != nil || reply.Held {
				t.Errorf("%+v, %v after a transaction that was rolled back, want it queued", reply, err)
			}
		}
		if err := s.Cancel(t.Context(), next); err != nil {
			t.Error(err)
		}
	}
	tx := beginGuarded(ctx, t, s, pool)
	if _, err := tx.Exec(t.Context(), "PREPARE TRANSACTION 'guarded'"); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if l, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(sqldrill.TTL)); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("%v, %v while a transaction is prepared, want ErrBusy", l, err)
	}
	if _, err := pool.Exec(t.Context(), "COMMIT PREPARED 'guarded'"); err != nil {
		t.Fatal(err)
	}
	again, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(10*time.Second))
	if err != nil {
		t.Fatalf("%v after the commit", err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

// A name kept only by a guard should be listed as held.
func TestGuardedNameIsListed(t *testing.T) {
	t.Parallel()
	for kind, lock := range sqldrill.Locking {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, locks, pool := newClient(t)
			l, err := lock(t.Context(), locks)
			if err != nil {
				t.Fatal(err)
			}
			tx := beginGuarded(l.Context(), t, s, pool)
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
			seen := func() (listed, holding int) {
				names, err := s.List(t.Context(), "n")
				if err != nil {
					t.Fatal(err)
				}
				state, err := s.Inspect(t.Context(), "n")
				if err != nil {
					t.Fatal(err)
				}
				return len(names), state.Holding
			}
			if listed, holding := seen(); listed != 1 || holding != 1 {
				t.Errorf("listed %d times, %d holders while a transaction is guarded, want 1 and 1", listed, holding)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if listed, holding := seen(); listed != 0 || holding != 0 {
				t.Errorf("listed %d times, %d holders after the transaction, want none", listed, holding)
			}
		})
	}
}
