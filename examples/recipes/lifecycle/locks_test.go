package lifecycle

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
)

// wantFreeAfter fails the test unless the lock of work that ends during stop is released. So the locks
// close while the connection is still open.
func wantFreeAfter(t *testing.T, addr string, locks *dibs.Client, stop func()) {
	t.Helper()
	lease, err := locks.Mutex("order:42").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	for !errors.Is(err, dibs.ErrClosed) { // until the client refuses new work
		err = locks.Mutex("another").Do(t.Context(), func(context.Context) error { return nil })
	}
	_ = lease.Unlock() // a Close has released it already
	<-stopped
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	others := dibs.New(goredisstore.New(rdb))
	defer others.Close()
	if _, err := others.Mutex("order:42").TryLock(t.Context()); err != nil {
		t.Errorf("after the stop: %v", err)
	}
}

func TestModule(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	var locks *dibs.Client
	app := fxtest.New(t, Module, fx.Supply(&redis.Options{Addr: addr}), fx.Populate(&locks))
	app.RequireStart()
	wantFreeAfter(t, addr, locks, func() { app.RequireStop() })
}

// Wire should call the cleanup functions in the providers' reverse order.
func TestProviders(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	rdb, closeRedis := ProvideRedis(&redis.Options{Addr: addr})
	locks, closeLocks := ProvideLocks(rdb)
	wantFreeAfter(t, addr, locks, func() {
		closeLocks()
		closeRedis()
	})
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Error("the connection is still open")
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, closeRedis := ProvideRedis(&redis.Options{Addr: server.Addr()})
	defer closeRedis()
	locks, closeLocks := ProvideLocks(rdb)
	defer closeLocks()
	wantStatus(t, locks, http.StatusOK)
	server.Kill()
	wantStatus(t, locks, http.StatusServiceUnavailable)
}

func wantStatus(t *testing.T, locks *dibs.Client, want int) {
	t.Helper()
	answer := httptest.NewRecorder()
	Ready(locks)(answer, httptest.NewRequest(http.MethodGet, "/ready", http.NoBody))
	if answer.Code != want {
		t.Errorf("status %d, want %d: %s", answer.Code, want, answer.Body)
	}
}
