package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// oneSnapshot contains the levels at which a transaction sees only changes committed before it
// began.
var oneSnapshot = levels[1:]

func codeOf(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

// beginAt begins a transaction. With old, it has a snapshot from that time, except at read
// committed.
func beginAt(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, old bool) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // without effect after a commit
	if old {
		if _, err := tx.Exec(t.Context(), "SELECT"); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}

// A guard races its lease's end. While a guarded transaction is open, nobody else should be granted
// the name. This holds at each isolation level, even if the snapshot is older than the lease's end.
func TestGuardRacesRevoke(t *testing.T) {
	t.Parallel()
	const guards = 1000
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s, locks, pool := newClient(t)
			sqldrill.WantNoneStale(t, guards, func(i int) string {
				return raceRevoke(t, s, locks, pool, level, i%2 == 0)
			})
		})
	}
}

// raceRevoke returns a guard's outcome.
func raceRevoke(t *testing.T, s *pgstore.Store, locks *dibs.Client, pool *pgxpool.Pool, level pgx.TxIsoLevel, old bool) string {
	t.Helper()
	l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(time.Minute), dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }() // it was lost
	tx := beginAt(t, pool, level, old)
	next := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
	others := make(chan bool)
	go func() {
		granted, err := sqldrill.RevokeAndAcquire(t.Context(), s, l, next)
		if err != nil {
			t.Error(err)
		}
		others <- granted
	}()
	err = s.GuardPgx(context.WithoutCancel(l.Context()), tx) // the revocation ends the context
	granted := <-others
	if err := errors.Join(tx.Rollback(t.Context()), s.Cancel(t.Context(), next)); err != nil {
		t.Fatal(err)
	}
	switch {
	case err == nil && granted:
		return "stale"
	case err == nil:
		return "guarded"
	case errors.Is(err, dibs.ErrLost):
		return "lost"
	case codeOf(err) == "40001":
		return "repeat"
	}
	t.Fatal(err)
	return ""
}

// With one snapshot, a guard should distinguish a lost lease from an outdated snapshot.
func TestGuardWithAnOldSnapshot(t *testing.T) {
	t.Parallel()
	for kind, lock := range sqldrill.Locking {
		for _, level := range oneSnapshot {
			t.Run(fmt.Sprintf("%s/%s", kind, level), func(t *testing.T) {
				t.Parallel()
				pool := newPool(t, sharedServer(t).URL())
				schema := fmt.Sprintf("levels_%d", schemas.Add(1))
				s := newStoreOn(t, pool, pgstore.Schema(schema))
				locks := dibs.New(s, dibs.Timeout(10*time.Second))
				defer locks.Close()
				guardOld := func(what string, change func()) {
					t.Helper()
					tx := beginAt(t, pool, level, true)
					change()
					l, err := lock(t.Context(), locks, dibs.TTL(time.Minute))
					if err != nil {
						t.Fatal(err)
					}
					if err := s.GuardPgx(l.Context(), tx); codeOf(err) != "40001" || errors.Is(err, dibs.ErrLost) {
						t.Errorf("%s: %v, want the SQLSTATE 40001", what, err)
					}
					_ = tx.Rollback(t.Context())
					if err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return s.GuardPgx(l.Context(), tx) }); err != nil {
						t.Errorf("%s: %v in a new transaction", what, err)
					}
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				}
				guardOld("the name is new", func() {})
				guardOld("the lease is younger", func() {})
				l, err := lock(t.Context(), locks, dibs.TTL(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				tx := beginAt(t, pool, level, true)
				if err := l.Extend(t.Context(), time.Hour); err != nil {
					t.Fatal(err)
				}
				if err := s.GuardPgx(l.Context(), tx); codeOf(err) != "40001" {
					t.Errorf("%v after a renewal, want the SQLSTATE 40001", err)
				}
				stopped := context.WithoutCancel(l.Context())
				_ = tx.Rollback(t.Context())
				tx = beginAt(t, pool, level, true)
				if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: l.Fence()}); err != nil {
					t.Fatal(err)
				}
				next, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(10*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				if err := s.GuardPgx(stopped, tx); codeOf(err) != "40001" {
					t.Errorf("%v after the loss, want the SQLSTATE 40001", err)
				}
				_ = tx.Rollback(t.Context())
				tx = beginAt(t, pool, level, false)
				if err := s.GuardPgx(stopped, tx); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("%v in a new transaction after the loss, want ErrLost", err)
				}
				if err := errors.Join(tx.Rollback(t.Context()), next.Unlock()); err != nil {
					t.Error(err)
				}
				if _, err := pool.Exec(t.Context(), "DELETE FROM "+schema+".names"); err != nil {
					t.Fatal(err)
				}
				tx = beginAt(t, pool, level, true)
				if err := s.GuardPgx(stopped, tx); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("%v after the loss, when the name was removed, want ErrLost", err)
				}
				_ = l.Unlock() // it was lost
			})
		}
	}
}

// A guard with one snapshot delays neither renewals nor waiters.
func TestGuardWithOneSnapshotDelaysNoRenewal(t *testing.T) {
	t.Parallel()
	for _, level := range oneSnapshot {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s, locks, pool := newClient(t)
			l, err := locks.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tx := beginAt(t, pool, level, false)
			if err := s.GuardPgx(l.Context(), tx); err != nil {
				t.Fatal(err)
			}
			limited, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			if err := l.Extend(limited, time.Minute); err != nil {
				t.Errorf("extend: %v", err)
			}
			reply, err := s.Acquire(limited, driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true})
			if err != nil || reply.Position != 1 {
				t.Errorf("%+v, %v, want it queued", reply, err)
			}
			if err := errors.Join(tx.Commit(t.Context()), l.Unlock()); err != nil {
				t.Error(err)
			}
		})
	}
}
