package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/mysqlstore"
)

const ttl = 500 * time.Millisecond

// guardedTTL is that of a lease which has to be held until a guard begins, also on a busy machine.
const guardedTTL = 10 * ttl

// newClient returns a client of a store, and the database of the store.
func newClient(t *testing.T, options ...dibs.Option) (*mysqlstore.Store, *dibs.Client, *sql.DB) {
	t.Helper()
	db := newDB(t, sharedServer(t).DSN("mysql"))
	s := newStoreOn(t, db)
	locks := dibs.New(s, append([]dibs.Option{dibs.Timeout(10 * time.Second)}, options...)...)
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, locks, db
}

// beginGuarded begins a transaction that the leases of ctx guard.
func beginGuarded(ctx context.Context, t *testing.T, s *mysqlstore.Store, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // without effect after a commit
	if err := s.Guard(ctx, tx); err != nil {
		t.Fatal(err)
	}
	return tx
}

// locking are the ways to hold the name n.
var locking = map[string]func(context.Context, *dibs.Client, ...dibs.Option) (*dibs.Lease, error){
	"mutex": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.Mutex("n").Lock(ctx, options...)
	},
	"reader": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.RWMutex("n").RLock(ctx, options...)
	},
	"several": func(ctx context.Context, c *dibs.Client, options ...dibs.Option) (*dibs.Lease, error) {
		return c.All("n", "o").Lock(ctx, options...)
	},
}

// A guarded transaction keeps everybody else out until it ends, also after its lease has expired.
func TestGuardKeepsOthersOut(t *testing.T) {
	t.Parallel()
	for kind, lock := range locking {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, locks, db := newClient(t)
			l, err := lock(t.Context(), locks, dibs.TTL(guardedTTL), dibs.NoRenew())
			if err != nil {
				t.Fatal(err)
			}
			ctx := l.Context()
			tx := beginGuarded(ctx, t, s, db)
			<-ctx.Done() // the holder has lost its lease, as after a long stop
			begin := time.Now()
			if l, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(ttl)); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("%v, %v while a transaction is guarded, want ErrBusy", l, err)
			}
			if took := time.Since(begin); took > 10*ttl {
				t.Errorf("waited for %v, want about %v", took, ttl)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			next, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Unlock(); err != nil {
				t.Error(err)
			}
			_ = l.Unlock() // it was lost
		})
	}
}

// A lease that is released while a transaction is guarded ends with the transaction.
func TestReleaseOfAGuardedLease(t *testing.T) {
	t.Parallel()
	for kind, lock := range locking {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, locks, db := newClient(t)
			l, err := lock(t.Context(), locks)
			if err != nil {
				t.Fatal(err)
			}
			tx := beginGuarded(l.Context(), t, s, db)
			next := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
			if reply, err := s.Acquire(t.Context(), next); err != nil || reply.Position != 1 {
				t.Fatalf("%+v, %v, want it queued", reply, err)
			}
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
			if reply, err := s.Acquire(t.Context(), next); err != nil || reply.Held || reply.Remaining > time.Second {
				t.Errorf("%+v, %v while a transaction is guarded, want it queued for a short time", reply, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if reply, err := s.Acquire(t.Context(), next); err != nil || !reply.Held {
				t.Errorf("%+v, %v after the transaction, want it held", reply, err)
			}
		})
	}
}

// A lease that was lost guards nothing, whatever the isolation level and however often it is asked.
// The transaction that has learnt of the loss keeps nobody else out.
func TestGuardOfALostLease(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			s, locks, db := newClient(t)
			l, err := locks.Mutex("n").Lock(t.Context(), dibs.TTL(4*ttl), dibs.NoRenew())
			if err != nil {
				t.Fatal(err)
			}
			stopped := context.WithoutCancel(l.Context()) // of a process that does not know of its loss
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }() // it has failed on purpose
			next, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Guard(stopped, tx); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("%v after the loss, want ErrLost", err)
			}
			if level == sql.LevelSerializable {
				_ = tx.Rollback() // each read of this level has locks
			}
			if err := next.Unlock(); err != nil {
				t.Error(err)
			}
			last, err := locks.Mutex("n").TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := last.Unlock(); err != nil {
				t.Error(err)
			}
			_ = l.Unlock() // it was lost
		})
	}
}

func TestGuardWithoutALease(t *testing.T) {
	t.Parallel()
	s, _, db := newClient(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Guard(t.Context(), tx); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("%v without a lease, want ErrInvalid", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

// Renewals and waiters do not wait for a guard.
func TestGuardDelaysNoRenewal(t *testing.T) {
	t.Parallel()
	for kind, lock := range locking {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, locks, db := newClient(t)
			l, err := lock(t.Context(), locks)
			if err != nil {
				t.Fatal(err)
			}
			tx := beginGuarded(l.Context(), t, s, db)
			limited, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			if err := l.Extend(limited, time.Minute); err != nil {
				t.Errorf("extend: %v", err)
			}
			reply, err := s.Acquire(limited, driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true})
			if err != nil || reply.Held || reply.Position != 1 {
				t.Errorf("%+v, %v, want it queued", reply, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The calls of a cohort share a lease in the store, so a transaction cannot be tied to one of
// them, also inside an outer lock. The call keeps its lease.
func TestGuardRefusesACohort(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	hot := cohort.New(locks.Mutex("n"), 8, 100*time.Millisecond)
	inCohort := func(ctx context.Context) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := s.Guard(ctx, tx); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
		return nil
	}
	for _, err := range []error{
		hot.Do(t.Context(), inCohort),
		locks.Mutex("outer").Do(t.Context(), func(ctx context.Context) error { return hot.Do(ctx, inCohort) }),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}
