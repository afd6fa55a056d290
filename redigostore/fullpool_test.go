package redigostore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redigostore"
	"github.com/gomodule/redigo/redis"
)

// An error says that the program's other work has all connections.
func TestFullPoolIsNamed(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		server := redistest.Start(t)
		pool := &redis.Pool{
			MaxIdle: 1, MaxActive: 1, Wait: wait,
			DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", server.Addr()) },
		}
		t.Cleanup(func() { pool.Close() })
		other, err := pool.GetContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		locks := dibs.New(redigostore.New(pool))
		t.Cleanup(func() { locks.Close() })
		const want = "no connection was free in the pool"
		if _, err := locks.Mutex("m").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("wait %v: got %v, want an error with %q", wait, err, want)
		}
	}
}
