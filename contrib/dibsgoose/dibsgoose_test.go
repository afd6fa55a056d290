package dibsgoose_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgoose"
	"github.com/dibslock/dibs/memstore"
)

// A migration that takes an hour keeps its lock, because the lease is renewed.
func TestMigrationLongerThanTheTTL(t *testing.T) {
	file := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		mine, theirs := dibs.New(store), dibs.New(store)
		defer mine.Close()
		defer theirs.Close()
		db := openForTest(t, file)
		long := mustProvider(t, db, dibsgoose.New(mine, name, dibs.TTL(10*time.Second)), steps{last: func(context.Context) error {
			time.Sleep(time.Hour)
			return nil
		}})

		done := make(chan error, 1)
		go func() {
			_, err := long.Up(t.Context())
			done <- err
		}()
		time.Sleep(time.Minute)
		begin := time.Now()
		results, err := mustProvider(t, db, dibsgoose.New(theirs, name), steps{}).Up(t.Context())
		if err != nil || len(results) > 0 {
			t.Errorf("the second replica: %v, %v, want nothing to do", results, err)
		}
		if waited := time.Since(begin); waited != 59*time.Minute {
			t.Errorf("waited %v, want 59m", waited)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantVersion(t, db, 3)
	})
}

// With nothing to do, a start does not depend on the lock store.
func TestNothingPending(t *testing.T) {
	locks := dibs.New(memstore.New())
	db := openForTest(t, newFile(t))
	provider := mustProvider(t, db, dibsgoose.New(locks, name), steps{})
	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Up(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := provider.Down(t.Context()) // needs the lock
	wantError(t, err, dibs.ErrClosed)
}

// A Locker cannot stop the migration, but the Provider reports the loss.
func TestLossDuringAMigration(t *testing.T) {
	file := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := dibs.New(store)
		defer locks.Close()
		db := openForTest(t, file)
		provider := mustProvider(t, db, dibsgoose.New(locks, name), steps{last: func(ctx context.Context) error {
			store.LoseData()
			time.Sleep(time.Minute)
			return ctx.Err()
		}})

		results, err := provider.Up(t.Context())
		wantError(t, err, dibs.ErrLost)
		if len(results) != 3 {
			t.Errorf("%d migrations reported, want 3", len(results))
		}
		wantVersion(t, db, 3)
	})
}

// Around the Provider, Do stops the migration and rolls it back.
func TestLossInDo(t *testing.T) {
	file := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := dibs.New(store)
		defer locks.Close()
		db := openForTest(t, file)
		provider := mustProvider(t, db, nil, steps{last: func(ctx context.Context) error {
			store.LoseData()
			<-ctx.Done()
			return context.Cause(ctx)
		}})

		err := locks.Mutex(name).Do(t.Context(), func(ctx context.Context) error {
			_, err := provider.Up(ctx)
			return err
		})
		wantError(t, err, dibs.ErrLost)
		wantVersion(t, db, 2)
		var columns int
		row := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM pragma_table_info('orders')")
		if err := row.Scan(&columns); err != nil || columns != 2 {
			t.Errorf("%d columns, %v, want the 2 of before", columns, err)
		}
	})
}

// A Locker can be shared. After a loss, the second user must wait for the first user's end.
func TestSharedLockerAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := dibs.New(store)
		defer locks.Close()
		locker := dibsgoose.New(locks, name)
		if err := locker.Lock(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		store.LoseData()
		time.Sleep(time.Minute) // the loss is detected

		ended, end := context.WithCancel(t.Context())
		second := make(chan error, 2)
		go func() { second <- locker.Lock(ended, nil) }()
		synctest.Wait()
		end()
		wantError(t, <-second, dibs.ErrBusy, context.Canceled)

		go func() { second <- locker.Lock(t.Context(), nil) }()
		synctest.Wait()
		if len(second) > 0 {
			t.Fatalf("the second Lock returned before the first Unlock: %v", <-second)
		}
		wantError(t, locker.Unlock(t.Context(), nil), dibs.ErrLost)
		if err := <-second; err != nil {
			t.Error(err)
		}
		if err := locker.Unlock(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}

// The second lease can be lost as well, before the first user has ended.
func TestSharedLockerAfterTwoLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := dibs.New(store)
		defer locks.Close()
		locker := dibsgoose.New(locks, name)
		if err := locker.Lock(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		store.LoseData()
		time.Sleep(time.Minute)
		second := make(chan error, 1)
		go func() { second <- locker.Lock(t.Context(), nil) }()
		synctest.Wait()
		store.LoseData()
		wantError(t, <-second, dibs.ErrLost)
		wantError(t, locker.Unlock(t.Context(), nil), dibs.ErrLost)
	})
}

func TestUnlockWithoutLock(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	wantError(t, dibsgoose.New(locks, name).Unlock(t.Context(), nil), dibs.ErrInvalid)
}

func TestOptions(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	wantError(t, dibsgoose.New(locks, name, dibs.TTL(-1)).Lock(t.Context(), nil), dibs.ErrInvalid)
	wantError(t, dibsgoose.New(locks, "").Lock(t.Context(), nil), dibs.ErrInvalid)

	first, second := dibsgoose.New(locks, name, dibs.Label("first")), dibsgoose.New(locks, name, dibs.Wait(0))
	if err := first.Lock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	state, err := locks.Inspect(t.Context(), name)
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Label != "first" {
		t.Errorf("got %v, %v, want one holder with the label first", state, err)
	}
	wantError(t, second.Lock(t.Context(), nil), dibs.ErrBusy)
	if err := first.Unlock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second.Lock(t.Context(), nil), second.Unlock(t.Context(), nil)); err != nil {
		t.Error(err)
	}
}

// A Provider in Do must not have a Locker with the same name.
func TestLockerInDo(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	err := locks.Mutex(name).Do(t.Context(), func(ctx context.Context) error {
		return dibsgoose.New(locks, name).Lock(ctx, nil)
	})
	wantError(t, err, dibs.ErrReentrant)
}
