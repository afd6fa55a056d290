package redigostore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redigostore"
	"github.com/gomodule/redigo/redis"
)

// poolOf returns a pool with a single connection to an address.
func poolOf(t *testing.T, addr string, wait bool) *redis.Pool {
	t.Helper()
	pool := &redis.Pool{
		MaxIdle: 1, MaxActive: 1, Wait: wait,
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", addr) },
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// An error should say that the program's other work uses all connections, not that the server does
// not reply.
func TestFullPoolIsNamed(t *testing.T) {
	t.Parallel()
	const want = "no connection was free in the pool of the client (MaxActive is 1)"
	server := redistest.Start(t)
	for _, wait := range []bool{false, true} {
		pool := poolOf(t, server.Addr(), wait)
		other, err := pool.GetContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		locks := dibs.New(redigostore.New(pool))
		t.Cleanup(func() { locks.Close() })
		if _, err := locks.Mutex("m").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("wait %v: got %v, want an error with %q", wait, err, want)
		}
	}
}

// The error for a silent server should not name a pool filled with dibs' own requests.
func TestSilentServerIsNoFullPool(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	store := redigostore.New(poolOf(t, proxy.Addr(), true))
	drill.SilentServerIsNoFullPool(t, store, proxy)
}
