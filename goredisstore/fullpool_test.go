package goredisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// An error says that the program's other work has all connections, and not that the server does
// not reply. The error for a server that does not reply says that.
func TestFullPoolIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := dial(t, &redis.Options{Addr: server.Addr(), PoolSize: 2})
	locks := dibs.New(goredisstore.New(rdb))
	t.Cleanup(func() { locks.Close() })
	for range 2 {
		other := rdb.Conn()
		if err := other.Ping(t.Context()).Err(); err != nil { // takes a connection of the pool
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
	}
	const pool = "no connection was free in the pool"
	_, err := locks.Mutex("m").TryLock(t.Context())
	if !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), pool) {
		t.Errorf("got %v, want an error with %q", err, pool)
	}

	silent := redistest.Start(t)
	other := dibs.New(goredisstore.New(dial(t, &redis.Options{Addr: silent.Addr()})), dibs.Timeout(200*time.Millisecond))
	t.Cleanup(func() { other.Close() })
	if err := silent.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Resume() })
	if _, err := other.Mutex("m").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) || strings.Contains(err.Error(), pool) {
		t.Errorf("got %v, want ErrUnavailable without %q", err, pool)
	}
}
