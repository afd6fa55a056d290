package dibs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
)

// alwaysGrants is a store that grants every request.
type alwaysGrants struct{ driver.Store }

func (alwaysGrants) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{Held: true, Fence: 1}, nil
}

func (alwaysGrants) Cancel(context.Context, driver.AcquireRequest) error { return nil }

func (alwaysGrants) Watch(ctx context.Context, _ string, _ func(driver.Event)) error {
	<-ctx.Done()
	return nil
}

// Err compares the clock: after a pause, the scheduler may be the last to wake.
func TestErrNeedsNoScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(alwaysGrants{})
		c.started.Store(true) // as if the scheduler never ran
		l, err := c.Mutex("n").Lock(t.Context(), TTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(979 * time.Millisecond)
		if err := l.Err(); err != nil {
			t.Errorf("lost before its deadline: %v", err)
		}
		time.Sleep(time.Millisecond)
		if err := l.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("error %v at the deadline, want ErrLost", err)
		}
		if err := l.Unlock(); !errors.Is(err, ErrLost) {
			t.Errorf("unlock: %v, want ErrLost", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
