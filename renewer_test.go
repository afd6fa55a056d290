package dibs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
)

// always grants.
type always struct{ driver.Store }

func (always) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{Held: true, Fence: 1}, nil
}

func (always) Cancel(context.Context, driver.AcquireRequest) error { return nil }

func (always) Watch(ctx context.Context, _ string, _ func(driver.Event)) error {
	<-ctx.Done()
	return nil
}

// The clock decides, not the scheduler: after a pause it may be the last to wake.
func TestErrNeedsNoScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(always{})
		c.started = true // as if the scheduler never got the processor
		l, err := c.Mutex("n").Lock(t.Context(), TTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(979 * time.Millisecond)
		if err := l.Err(); err != nil {
			t.Errorf("lost before its time: %v", err)
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
