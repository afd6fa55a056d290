package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// An account writes under a lock. In production, guard is a database's guard, for a transaction.
type account struct {
	locks   *dibs.Client
	guard   func(ctx context.Context) error
	balance int
}

func (a *account) withdraw(ctx context.Context, amount int) error {
	return a.locks.Mutex("account").Do(ctx, func(ctx context.Context) error {
		if err := a.guard(ctx); err != nil {
			return err // nothing is written
		}
		a.balance -= amount
		return nil
	})
}

// Code with a database guard can be tested without a database. The operator revokes the lease just
// before the guard.
func ExampleStore_Guard() {
	store := memstore.New()
	locks := dibs.New(store)
	defer locks.Close()
	a := account{locks: locks, guard: store.Guard, balance: 100}
	ctx := context.Background()
	fmt.Println(a.withdraw(ctx, 10), a.balance)

	a.guard = func(ctx context.Context) error {
		if _, err := locks.Revoke(ctx, "account", dibs.Holder{Fence: carried.Fence(ctx)}, "maintenance"); err != nil {
			return err
		}
		return store.Guard(ctx)
	}
	fmt.Println(errors.Is(a.withdraw(ctx, 10), dibs.ErrLost), a.balance)
	// Output:
	// <nil> 90
	// true 90
}

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := dibs.New(store)
		defer locks.Close()
		l, err := locks.All([]string{"a", "b"}).Lock(t.Context(), dibs.OwnerToken("mine"), dibs.TTL(time.Minute), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		stopped := context.WithoutCancel(l.Context()) // in a process that does not know about its loss
		if err := store.Guard(stopped); err != nil {
			t.Errorf("%v while it is held", err)
		}
		for what, err := range map[string]error{"without a lease": store.Guard(t.Context()), "in another store": memstore.New().Guard(stopped)} {
			if !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		time.Sleep(2 * time.Minute)
		if err := store.Guard(stopped); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("%v after the loss, want ErrLost", err)
		}
		again := driver.AcquireRequest{Name: "a", With: []string{"b"}, Token: "mine", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}
		if reply, err := store.Acquire(t.Context(), again); err != nil || !reply.Held {
			t.Fatalf("%+v, %v, want it held", reply, err)
		}
		if err := store.Guard(stopped); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("%v when the token has another lease, want ErrLost", err)
		}
		_ = l.Unlock() // it was lost
	})
}

// A decorated decorates a store.
type decorated struct{ *driver.Full }

// A guard accepts a client's leases if the client's store is a decorator.
func TestGuardOfADecorator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := dibs.New(decorated{driver.Complete(store)})
		defer locks.Close()
		if err := locks.Mutex("n").Do(t.Context(), store.Guard); err != nil {
			t.Error(err)
		}
		if err := locks.Mutex("n").Do(t.Context(), memstore.New().Guard); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("guard of another store: %v", err)
		}
	})
}
