package sqldrill

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// EndsWaitsWhenClosed checks that a waiter ends soon, with the reason, after its connections are
// closed for good. direct and s are the same store, and closeConns closes the connections of s.
func EndsWaitsWhenClosed(t *testing.T, direct, s driver.Store, closeConns func(), reason string) {
	t.Helper()
	held, err := dibs.New(direct).Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locks := dibs.New(s)
	t.Cleanup(func() { locks.Close() })
	waits, queued := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(time.Minute), dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(queued) }}))
		waits <- err
	}()
	<-queued
	begin := time.Now()
	closeConns()
	err = <-waits
	if took := time.Since(begin); !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), reason) || took > 10*time.Second {
		t.Errorf("got %v after %v", err, took)
	} else {
		t.Logf("FIGURE a wait ends %v after the connections are closed: %v", took, err)
	}
	begin = time.Now()
	if _, err := locks.Mutex("m").Lock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) || time.Since(begin) > time.Second {
		t.Errorf("a new lock: %v after %v", err, time.Since(begin))
	}
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}
