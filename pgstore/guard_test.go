package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// newClient returns a store's client, and the store's pool.
func newClient(t *testing.T, options ...dibs.Option) (*pgstore.Store, *dibs.Client, *pgxpool.Pool) {
	t.Helper()
	pool := newPool(t, sharedServer(t).URL())
	s := newStoreOn(t, pool)
	locks := dibs.New(s, append([]dibs.Option{dibs.Timeout(10 * time.Second)}, options...)...)
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, locks, pool
}

// beginGuarded begins a transaction guarded by ctx's leases.
func beginGuarded(ctx context.Context, t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // without effect after a commit
	if err := s.GuardPgx(ctx, tx); err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestGuards(t *testing.T) {
	t.Parallel()
	sqldrill.RunGuards(t, func(t *testing.T, options ...dibs.Option) sqldrill.Guarded {
		s, locks, pool := newClient(t, options...)
		return sqldrill.Guarded{Store: s, Locks: locks, Begin: func(ctx context.Context, level sql.IsolationLevel) (sqldrill.Transaction, error) {
			return beginNative(ctx, s, pool, level)
		}}
	})
}

// ReleaseIn must refuse a cohort's call, as Guard does.
func TestReleaseInRefusesACohort(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	hot := cohort.New(locks.Mutex("n"), cohort.Passes(8), cohort.IdleHold(100*time.Millisecond))
	err := hot.Do(t.Context(), func(ctx context.Context) error {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return s.ReleaseInPgx(ctx, tx) })
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
		return context.Cause(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// A lease released while a transaction is guarded must end with the transaction, even if nobody
// waits: then the release is a plain statement.
func TestReleaseOfAQuietGuardedLease(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	for range 2 { // the second release finds the remains from the first
		l, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx := beginGuarded(l.Context(), t, s, pool)
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
		next := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
		if reply, err := s.Acquire(t.Context(), next); err != nil || reply.Held {
			t.Errorf("%+v, %v while a transaction is guarded, want it busy", reply, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if reply, err := s.Acquire(t.Context(), next); err != nil || !reply.Held {
			t.Errorf("%+v, %v after the transaction, want it held", reply, err)
		}
		if held, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "t"}); err != nil || !held {
			t.Errorf("%v, %v, want it released", held, err)
		}
	}
}

// An expired lease guards nothing, with either library.
func TestGuardOfALostLease(t *testing.T) {
	t.Parallel()
	s, locks, pool := newClient(t)
	l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(sqldrill.GuardedTTL), dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	ctx := l.Context()
	stopped := context.WithoutCancel(ctx) // for a process that does not notice its loss
	db, err := sql.Open("pgx", sharedServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	guards := map[string]func() error{
		"pgx": func() error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return s.GuardPgx(stopped, tx) })
		},
		"database/sql": func() error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			return errors.Join(s.Guard(stopped, tx), tx.Commit())
		},
	}
	for library, guard := range guards {
		if err := guard(); err != nil {
			t.Errorf("%s: %v while the lease is held", library, err)
		}
	}
	<-ctx.Done()
	for end := time.Now().Add(5 * time.Second); ; { // the server's TTL ends a little later
		state, err := s.Inspect(t.Context(), "n")
		if err != nil || time.Now().After(end) {
			t.Fatalf("still held: %+v, %v", state, err)
		}
		if state.Holding == 0 {
			break
		}
		time.Sleep(time.Millisecond) // between polls
	}
	for library, guard := range guards {
		if err := guard(); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("%s: %v after the loss, want ErrLost", library, err)
		}
	}
	_ = l.Unlock() // it was lost
}

// A connection may have another isolation level, and may not wait for its commits to be stored.
// Leases are safe all the same.
func TestSettingsOfTheConnection(t *testing.T) {
	t.Parallel()
	for setting, value := range map[string]string{"default_transaction_isolation": "serializable", "synchronous_commit": "off"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(sharedServer(t).URL())
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.RuntimeParams[setting] = value
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			schema := fmt.Sprintf("settings_%d", schemas.Add(1))
			s := pgstore.New(pool, pgstore.Schema(schema))
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), fmt.Sprintf(recordSettings, schema)); err != nil {
				t.Fatal(err)
			}
			locks := dibs.New(s, dibs.Timeout(10*time.Second))
			defer locks.Close()
			inside, most := 0, 0
			for range 4 {
				done := make(chan error)
				for range 4 {
					go func() {
						done <- locks.Mutex("n").Do(t.Context(), func(context.Context) error {
							inside++
							most = max(most, inside)
							inside--
							return nil
						})
					}()
				}
				for range 4 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			}
			if most != 1 {
				t.Errorf("%d concurrent holders", most)
			}
			l, err := locks.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.Extend(t.Context(), time.Hour), l.Unlock()); err != nil {
				t.Error(err)
			}
			var relaxed int
			if err := pool.QueryRow(t.Context(), fmt.Sprintf("SELECT count(*) FROM %s.recorded WHERE durable = 'off'", schema)).Scan(&relaxed); err != nil || relaxed > 0 {
				t.Errorf("%d changes were committed with synchronous_commit off, %v", relaxed, err)
			}
		})
	}
}

// recordSettings records the settings with which a change is committed.
const recordSettings = `
CREATE TABLE %[1]s.recorded (durable text);
CREATE FUNCTION %[1]s.record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO %[1]s.recorded VALUES (current_setting('synchronous_commit'));
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER record AFTER INSERT OR UPDATE ON %[1]s.names DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION %[1]s.record();`
