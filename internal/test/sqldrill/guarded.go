package sqldrill

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
)

const (
	// TTL is for leases that a test loses.
	TTL = 500 * time.Millisecond
	// GuardedTTL is for leases that must be held until a guard begins, even on a busy machine.
	GuardedTTL = 10 * TTL
)

// Locking are the ways to hold the name n.
var Locking = map[string]func(context.Context, *dibs.Client, ...dibs.Option) (*dibs.Lease, error){
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

// A Guarded is a store, its client, and transactions in its database.
type Guarded struct {
	Store driver.Store
	Locks *dibs.Client
	Begin func(ctx context.Context, level sql.IsolationLevel) (Transaction, error)
}

// begin begins a transaction and rolls it back with the test unless it is committed.
func (g Guarded) begin(t *testing.T, level sql.IsolationLevel) Transaction {
	t.Helper()
	tx, err := g.Begin(t.Context(), level)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // without effect after a commit
	return tx
}

// guard begins a transaction guarded by ctx's leases.
func (g Guarded) guard(ctx context.Context, t *testing.T) Transaction {
	t.Helper()
	tx := g.begin(t, sql.LevelDefault)
	if err := tx.Guard(ctx); err != nil {
		t.Fatal(err)
	}
	return tx
}

// isFree checks that another call can hold the name n within the given time.
func (g Guarded) isFree(t *testing.T, within time.Duration) {
	t.Helper()
	next, err := g.Locks.Mutex("n").Lock(t.Context(), dibs.Wait(within))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}

// queued is a request for the name n.
var queued = driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}

// RunGuards tests whether transactions can be tied to leases. open returns a new store.
func RunGuards(t *testing.T, open func(t *testing.T, options ...dibs.Option) Guarded) {
	for kind, lock := range Locking {
		each := func(name string, run func(*testing.T, Guarded, func(...dibs.Option) *dibs.Lease)) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				g := open(t)
				run(t, g, func(options ...dibs.Option) *dibs.Lease {
					l, err := lock(t.Context(), g.Locks, options...)
					if err != nil {
						t.Fatal(err)
					}
					return l
				})
			})
		}
		each("keeps others out", keepsOthersOut)
		each("outlives a release", outlivesRelease)
		each("delays no renewal", delaysNoRenewal)
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run("refuses a lost lease/"+level.String(), func(t *testing.T) {
			t.Parallel()
			refusesLostLease(t, open(t), level)
		})
	}
	t.Run("refuses a context without a lease", func(t *testing.T) {
		t.Parallel()
		if err := open(t).begin(t, sql.LevelDefault).Guard(t.Context()); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v without a lease, want ErrInvalid", err)
		}
	})
	t.Run("refuses a cohort", func(t *testing.T) {
		t.Parallel()
		refusesCohort(t, open(t))
	})
}

// keepsOthersOut: a guarded transaction excludes all others until it ends, even after its lease
// expired.
func keepsOthersOut(t *testing.T, g Guarded, lock func(...dibs.Option) *dibs.Lease) {
	l := lock(dibs.TTL(GuardedTTL), dibs.NoRenew())
	ctx := l.Context()
	tx := g.guard(ctx, t)
	<-ctx.Done() // the holder lost its lease, as after a long stop
	begin := time.Now()
	if l, err := g.Locks.Mutex("n").Lock(t.Context(), dibs.Wait(TTL)); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("%v, %v while a transaction is guarded, want ErrBusy", l, err)
	}
	if took := time.Since(begin); took > 10*TTL {
		t.Errorf("waited for %v, want about %v", took, TTL)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.isFree(t, 10*time.Second)
	_ = l.Unlock() // it was lost
}

// outlivesRelease: a lease released during a guarded transaction ends with the transaction, and the
// waiter soon gets the lock.
func outlivesRelease(t *testing.T, g Guarded, lock func(...dibs.Option) *dibs.Lease) {
	l := lock()
	tx := g.guard(l.Context(), t)
	if reply, err := g.Store.Acquire(t.Context(), queued); err != nil || reply.Position != 1 {
		t.Fatalf("%+v, %v, want it queued", reply, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if reply, err := g.Store.Acquire(t.Context(), queued); err != nil || reply.Held || reply.Remaining > time.Second {
		t.Errorf("%+v, %v while a transaction is guarded, want it queued for a short time", reply, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reply, err := g.Store.Acquire(t.Context(), queued); err != nil || !reply.Held {
		t.Errorf("%+v, %v after the transaction, want it held", reply, err)
	}
}

// delaysNoRenewal: renewals and waiters do not wait for a guard.
func delaysNoRenewal(t *testing.T, g Guarded, lock func(...dibs.Option) *dibs.Lease) {
	l := lock()
	tx := g.guard(l.Context(), t)
	limited, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := l.Extend(limited, time.Minute); err != nil {
		t.Errorf("extend: %v", err)
	}
	if reply, err := g.Store.Acquire(limited, queued); err != nil || reply.Held || reply.Position != 1 {
		t.Errorf("%+v, %v, want it queued", reply, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// refusesLostLease: a lost lease guards nothing, whatever the isolation level. After it detects the
// loss, the transaction excludes nobody.
func refusesLostLease(t *testing.T, g Guarded, level sql.IsolationLevel) {
	l, err := g.Locks.Mutex("n").Lock(t.Context(), dibs.TTL(4*TTL), dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	stopped := context.WithoutCancel(l.Context()) // for a process unaware of its loss
	tx := g.begin(t, level)
	next, err := g.Locks.Mutex("n").Lock(t.Context(), dibs.Wait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Guard(stopped); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("%v after the loss, want ErrLost", err)
	}
	if level == sql.LevelSerializable {
		_ = tx.Rollback(t.Context()) // on MariaDB each read in this level takes locks
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
	last, err := g.Locks.Mutex("n").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Unlock(); err != nil {
		t.Error(err)
	}
	_ = l.Unlock() // it was lost
}

// refusesCohort: a cohort's calls share a lease in the store, so a transaction cannot be tied to a
// single call, even inside an outer lock. The call keeps its lease.
func refusesCohort(t *testing.T, g Guarded) {
	hot := cohort.New(g.Locks.Mutex("n"), 8, 100*time.Millisecond)
	inCohort := func(ctx context.Context) error {
		if err := g.begin(t, sql.LevelDefault).Guard(ctx); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
		return context.Cause(ctx)
	}
	for _, err := range []error{
		hot.Do(t.Context(), inCohort),
		g.Locks.Mutex("outer").Do(t.Context(), func(ctx context.Context) error { return hot.Do(ctx, inCohort) }),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}
