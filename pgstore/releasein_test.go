package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/jackc/pgx/v5"
)

// A lease released in a transaction ends with its commit, and the waiter is notified.
func TestReleaseIn(t *testing.T) {
	t.Parallel()
	for kind, lock := range sqldrill.Locking {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, locks, pool := newClient(t, dibs.TTL(time.Minute))
			l, err := lock(t.Context(), locks)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.ReleaseInPgx(l.Context(), tx); err != nil {
				t.Fatal(err)
			}
			// The name is held until the commit, and nobody else waits for the transaction.
			limited, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			next := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
			if reply, err := s.Acquire(limited, next); err != nil || reply.Held || reply.Position != 1 {
				t.Errorf("%+v, %v, want it queued", reply, err)
			}
			if err := l.Extend(limited, time.Minute); err != nil {
				t.Errorf("extend before the commit: %v", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			state, err := s.Inspect(t.Context(), "n")
			if err != nil || state.Holding != 1 || state.Holders[0].Token != next.Token {
				t.Errorf("%+v, %v after the commit, want the waiter to hold it", state, err)
			}
			// Not a loss: the holder released it.
			extend := driver.ExtendRequest{Name: "n", Token: string(l.Token()), TTL: sqldrill.TTL}
			if errs := s.Extend(t.Context(), []driver.ExtendRequest{extend}); !errors.Is(errs[0], dibs.ErrUnavailable) {
				t.Errorf("extend after the commit: %v, want ErrUnavailable", errs)
			}
			if err := l.Unlock(); err != nil {
				t.Errorf("unlock: %v", err)
			}
			if err := s.Cancel(t.Context(), next); err != nil {
				t.Error(err)
			}
		})
	}
}

// A lease goes on if the transaction is rolled back, and Unlock releases it.
func TestReleaseInIsRolledBack(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	l, err := locks.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.ReleaseInPgx(l.Context(), tx), tx.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("%v after the rollback, want ErrBusy", err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if state, err := s.Inspect(t.Context(), "n"); err != nil || state.Holding != 0 {
		t.Errorf("%+v, %v after Unlock", state, err)
	}
}

// Do should return nil after its lease was released in a transaction, with either library.
func TestReleaseInDo(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	db, err := sql.Open("pgx", sharedServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for library, release := range map[string]func(context.Context) error{
		"pgx": func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.ReleaseInPgx(ctx, tx) })
		},
		"database/sql": func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return errors.Join(s.ReleaseIn(ctx, tx), tx.Commit())
		},
	} {
		var left int
		err := locks.All([]string{"a", "b"}).Do(t.Context(), func(ctx context.Context) error {
			err := release(ctx)
			for _, name := range []string{"a", "b"} {
				state, err := s.Inspect(ctx, name)
				if err != nil {
					return err
				}
				left += state.Holding
			}
			return err
		})
		if err != nil || left > 0 {
			t.Errorf("%s: %v, %d names are held after the commit", library, err, left)
		}
	}
}

// A lost lease cannot be released, and the isolation level is checked before the commit.
func TestReleaseInRefused(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(4*sqldrill.TTL), dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	stopped := context.WithoutCancel(l.Context())
	releaseAt := func(level pgx.TxIsoLevel) error {
		return pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return s.ReleaseInPgx(stopped, tx) })
	}
	if err := releaseAt(pgx.Serializable); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("%v in a serializable transaction, want ErrInvalid", err)
	}
	next, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := releaseAt(pgx.ReadCommitted); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("%v after the loss, want ErrLost", err)
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
	_ = l.Unlock() // it was lost
}

// ReleaseIn releases the innermost lease carried by the context. The caller keeps its own.
func TestReleaseInOfTheInnermostLease(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	release := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.ReleaseInPgx(ctx, tx) })
	}
	err := locks.Mutex("outer").Do(t.Context(), func(ctx context.Context) error {
		err := locks.Mutex("inner").Do(ctx, func(ctx context.Context) error {
			if err := release(ctx); err != nil {
				return err
			}
			for name, want := range map[string]int{"outer": 1, "inner": 0} {
				if state, err := s.Inspect(ctx, name); err != nil || state.Holding != want {
					t.Errorf("%+v, %v after the commit, want %d holders", state, err, want)
				}
			}
			return nil
		})
		nested := locks.Mutex("outer").Do(ctx, release, dibs.Reentrant())
		if !errors.Is(nested, dibs.ErrInvalid) {
			t.Errorf("%v in a nested call, want ErrInvalid", nested)
		}
		return errors.Join(err, locks.Holds(ctx, "outer"))
	})
	if err != nil {
		t.Error(err)
	}
}

// A lease released in a transaction should leave the name reserved as long as its options say.
func TestReleaseInKeepsReservations(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	release := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.ReleaseInPgx(ctx, tx) })
	}
	runs := 0
	for range 4 {
		switch err := locks.Once("once", time.Hour).Do(t.Context(), release); {
		case err == nil:
			runs++
		case !errors.Is(err, dibs.ErrSkipped):
			t.Error(err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs in an hour, want 1", runs)
	}
	permit, err := locks.Semaphore("permit", 3, dibs.MinHold(time.Hour)).Permits(1).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(release(permit.Context()), permit.Unlock()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"once", "permit"} {
		state, err := s.Inspect(t.Context(), name)
		if err != nil || state.Holding != 1 || !state.Holders[0].Reserved || state.Holders[0].Remaining < 50*time.Minute {
			t.Errorf("%+v, %v, want it reserved", state, err)
		}
	}
}

// A loss after a rolled-back transaction is reported like any other.
func TestLossAfterARollback(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.ReleaseInPgx(l.Context(), tx), tx.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	reason := driver.RevokeRequest{Name: "n", Fence: l.Fence()}
	if revoked, err := s.Revoke(t.Context(), reason); err != nil || !revoked {
		t.Fatalf("%v, %v, want it revoked", revoked, err)
	}
	extend := driver.ExtendRequest{Name: "n", Token: string(l.Token()), TTL: sqldrill.TTL}
	if errs := s.Extend(t.Context(), []driver.ExtendRequest{extend}); !errors.Is(errs[0], dibs.ErrLost) {
		t.Errorf("extend: %v, want ErrLost", errs)
	}
	if held, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: string(l.Token())}); err != nil || held {
		t.Errorf("release: %v, %v, want it not held", held, err)
	}
	_ = l.Unlock() // it was lost
}

// Where triggers do not fire, a commit would not release the lease.
func TestReleaseInRefusesAReplica(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	err := locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL session_replication_role = replica"); err != nil {
				return err
			}
			return s.ReleaseInPgx(ctx, tx)
		})
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v with session_replication_role = replica, want ErrInvalid", err)
		}
		return locks.Holds(ctx, "n")
	})
	if err != nil {
		t.Error(err)
	}
}
