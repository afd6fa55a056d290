package dibsgocron

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A Locker forgets the lock of each run, also of a task that does not use it.
func TestLockerForgets(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	locker := NewLocker(locks, time.Millisecond)
	for _, used := range []bool{false, true} {
		lock, err := locker.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		if used && locker.removeOldest(t.Context()) != lock {
			t.Error("the task has not received its lock")
		}
		if err := lock.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
		if len(locker.held) != 0 {
			t.Errorf("%d jobs with a lock after Unlock, want none", len(locker.held))
		}
		time.Sleep(2 * time.Millisecond) // until minHold has passed
	}
}
