package etcdstore_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience is a time limit for requests on a busy machine.
const patience = 5 * time.Second

// isLong reports whether the long forms of the tests run.
func isLong() bool { return os.Getenv("DIBS_LONG") == "1" }

func lock(t *testing.T, c *dibs.Client, name string, options ...dibs.Option) *dibs.Lease {
	t.Helper()
	l, err := c.Mutex(name).Lock(t.Context(), options...)
	if err != nil {
		t.Error(err)
	}
	return l
}

func unlock(t *testing.T, l *dibs.Lease) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// eventually repeats an attempt until it returns nil.
func eventually(t *testing.T, limit time.Duration, attempt func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

// wantWaiters returns an error unless a number of requests wait for a name.
func wantWaiters(ctx context.Context, c *dibs.Client, name string, want int) error {
	state, err := c.Inspect(ctx, name)
	if err == nil && len(state.Waiters) != want {
		err = fmt.Errorf("%d wait for %s, want %d", len(state.Waiters), name, want)
	}
	return err
}
