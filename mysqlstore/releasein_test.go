package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
)

// releaseIn releases the lease of ctx in a transaction, and ends it with end.
func releaseIn(ctx context.Context, s *mysqlstore.Store, db *sql.DB, level sql.IsolationLevel, end func(*sql.Tx) error) error {
	tx, err := db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	return errors.Join(s.ReleaseIn(ctx, tx), end(tx))
}

// A lease that is released in a transaction ends with its commit, even if the process does nothing more.
func TestReleaseIn(t *testing.T) {
	t.Parallel()
	for kind, lock := range sqldrill.Locking {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(kind+"/"+level.String(), func(t *testing.T) {
				t.Parallel()
				s, locks, db := newClient(t, dibs.TTL(time.Minute))
				l, err := lock(t.Context(), locks)
				if err != nil {
					t.Fatal(err)
				}
				limited, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				next := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
				err = releaseIn(l.Context(), s, db, level, func(tx *sql.Tx) error {
					// The name is held until the commit, and nobody else waits for the transaction.
					if reply, err := s.Acquire(limited, next); err != nil || reply.Held || reply.Position != 1 {
						t.Errorf("%+v, %v, want it queued", reply, err)
					}
					if err := l.Extend(limited, time.Minute); err != nil {
						t.Errorf("extend before the commit: %v", err)
					}
					if err := s.Guard(l.Context(), tx); err != nil {
						t.Errorf("a guard at the end: %v", err)
					}
					return tx.Commit()
				})
				if err != nil {
					t.Fatal(err)
				}
				if state, err := s.Inspect(limited, "n"); err != nil || state.Holding != 0 || state.Waiting != 1 {
					t.Errorf("%+v, %v after the commit, want it free", state, err)
				}
				if reply, err := s.Acquire(limited, next); err != nil || !reply.Held {
					t.Errorf("%+v, %v for the next heartbeat, want it held", reply, err)
				}
				// Not a loss: the holder released it.
				extend := driver.ExtendRequest{Name: "n", Token: string(l.Token()), TTL: sqldrill.TTL}
				if errs := s.Extend(limited, []driver.ExtendRequest{extend}); !errors.Is(errs[0], dibs.ErrUnavailable) {
					t.Errorf("extend after the commit: %v, want ErrUnavailable", errs)
				}
				if err := l.Unlock(); err != nil {
					t.Errorf("unlock: %v", err)
				}
				if err := s.Cancel(limited, next); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Unlock hands the lock to the waiter after the commit.
func TestReleaseInNotifiesAtUnlock(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	queued := make(chan error, 1)
	err := locks.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
		go func() { queued <- locks.Mutex("n").Do(t.Context(), func(context.Context) error { return nil }) }()
		for {
			if state, err := s.Inspect(ctx, "n"); err != nil || state.Waiting > 0 {
				return errors.Join(err, releaseIn(ctx, s, db, sql.LevelDefault, (*sql.Tx).Commit))
			}
		}
	})
	if err := errors.Join(err, <-queued); err != nil {
		t.Error(err)
	}
}

// A lease continues if the transaction is rolled back, and Unlock releases it. A later loss is one.
func TestReleaseInIsRolledBack(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	for _, isLost := range []bool{false, true} {
		l, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := releaseIn(l.Context(), s, db, sql.LevelDefault, (*sql.Tx).Rollback); err != nil {
			t.Fatal(err)
		}
		if _, err := locks.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%v after the rollback, want ErrBusy", err)
		}
		if isLost {
			if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: l.Fence(), Reason: "test"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Unlock(); errors.Is(err, dibs.ErrLost) != isLost || err != nil && !isLost {
			t.Errorf("lost %v: unlock: %v", isLost, err)
		}
		if state, err := s.Inspect(t.Context(), "n"); err != nil || state.Holding != 0 {
			t.Errorf("%+v, %v after Unlock", state, err)
		}
	}
}

// A token used again gets its own lease.
func TestReleaseInWithATokenThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t, dibs.TTL(time.Minute))
	for range 3 {
		l, err := locks.Mutex("n").Lock(t.Context(), dibs.OwnerToken("request-42"))
		if err != nil {
			t.Fatal(err)
		}
		if err := releaseIn(l.Context(), s, db, sql.LevelDefault, (*sql.Tx).Commit); err != nil {
			t.Fatal(err)
		}
		again := driver.AcquireRequest{Name: "n", Token: "request-42", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
		if reply, err := s.Acquire(t.Context(), again); err != nil || !reply.Held || reply.Fence <= l.Fence() {
			t.Errorf("%+v, %v, want a new lease", reply, err)
		}
		if _, err := locks.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		if err := s.Cancel(t.Context(), again); err != nil {
			t.Error(err)
		}
		_ = l.Unlock()
	}
}

// A lost lease cannot be released, nor that of a caller.
func TestReleaseInRefused(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	l, err := locks.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release := func(ctx context.Context) error {
		return releaseIn(ctx, s, db, sql.LevelDefault, (*sql.Tx).Rollback)
	}
	nested := locks.Mutex("n").Do(l.Context(), release, dibs.Reentrant())
	if !errors.Is(nested, dibs.ErrInvalid) {
		t.Errorf("%v in a nested call, want ErrInvalid", nested)
	}
	stopped := context.WithoutCancel(l.Context())
	if _, err := s.Revoke(t.Context(), driver.RevokeRequest{Name: "n", Fence: l.Fence(), Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := release(stopped); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("%v after the loss, want ErrLost", err)
	}
	_ = l.Unlock() // it was lost
}

// A lease that is released in a transaction leaves the name reserved as long as its options say.
func TestReleaseInKeepsReservations(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t)
	exclusive, err := locks.Mutex("exclusive").Lock(t.Context(), dibs.MinHold(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	permit, err := locks.Semaphore("permit", 1, dibs.MinHold(time.Hour)).Permits(1).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*dibs.Lease{"exclusive": exclusive, "permit": permit} {
		if err := releaseIn(l.Context(), s, db, sql.LevelDefault, (*sql.Tx).Commit); err != nil {
			t.Fatal(err)
		}
		wantReserved := func(when string) {
			t.Helper()
			state, err := s.Inspect(t.Context(), name)
			if err != nil || state.Holding != 1 || !state.Holders[0].Reserved || state.Holders[0].Remaining < 50*time.Minute {
				t.Errorf("%s: %+v, %v %s, want it reserved", name, state, err, when)
			}
		}
		wantReserved("after the commit")
		other := driver.AcquireRequest{Name: name, Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
		if reply, err := s.Acquire(t.Context(), other); err != nil || reply.Held || !reply.Reserved {
			t.Errorf("%s: %+v, %v for another request, want it reserved", name, reply, err)
		}
		wantReserved("after a request")
		if err := l.Unlock(); err != nil {
			t.Errorf("%s: unlock: %v", name, err)
		}
		wantReserved("after Unlock")
	}
}

// An open transaction delays nobody who ends a lease released by another transaction.
func TestReleaseInBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	s, locks, db := newClient(t, dibs.TTL(time.Minute))
	var readers []*dibs.Lease
	for range 2 {
		l, err := locks.RWMutex("n").Reader().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, l)
	}
	limited, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	err := releaseIn(readers[0].Context(), s, db, sql.LevelDefault, func(open *sql.Tx) error {
		if err := releaseIn(readers[1].Context(), s, db, sql.LevelDefault, (*sql.Tx).Commit); err != nil {
			return err
		}
		writer := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
		if reply, err := s.Acquire(limited, writer); err != nil || reply.Held {
			t.Errorf("%+v, %v, want it busy", reply, err)
		}
		if state, err := s.Inspect(limited, "n"); err != nil || state.Holding != 1 || state.Holders[0].Token != string(readers[0].Token()) {
			t.Errorf("%+v, %v, want the first reader", state, err)
		}
		return open.Commit()
	})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := locks.Mutex("n").TryLock(limited); err != nil {
		t.Errorf("%v, want it free", err)
	} else if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(readers[0].Unlock(), readers[1].Unlock()); err != nil {
		t.Error(err)
	}
}
