package goredisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// An error says that the program's other work uses all connections, not that the server does not
// reply.
func TestFullPoolIsNamed(t *testing.T) {
	t.Parallel()
	const pool = "no connection was free in the pool of the client (PoolSize is 1)"
	for kind, open := range map[string]func() (redis.UniversalClient, *redis.Client){
		"one server": func() (redis.UniversalClient, *redis.Client) {
			rdb := dial(t, &redis.Options{Addr: redistest.Start(t).Addr(), PoolSize: 1})
			return rdb, rdb
		},
		"cluster": func() (redis.UniversalClient, *redis.Client) {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.StartClusterNode(t).Addr()}, PoolSize: 1})
			t.Cleanup(func() { rdb.Close() })
			master, err := rdb.MasterForKey(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			return rdb, master
		},
	} {
		rdb, server := open()
		locks := dibs.New(goredisstore.New(rdb))
		t.Cleanup(func() { locks.Close() })
		other := server.Conn()
		if err := other.Ping(t.Context()).Err(); err != nil { // takes a connection from the pool
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		if _, err := locks.Mutex("m").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), pool) {
			t.Errorf("%s: got %v, want an error with %q", kind, err, pool)
		}
	}
}

// If go-redis itself ends the wait for its pool, the error says that nothing was sent.
func TestPoolTimeoutIsUnsent(t *testing.T) {
	t.Parallel()
	rdb := dial(t, &redis.Options{Addr: redistest.Start(t).Addr(), PoolSize: 1, PoolTimeout: 10 * time.Millisecond})
	locks := dibs.New(goredisstore.New(rdb), dibs.Timeout(200*time.Millisecond))
	t.Cleanup(func() { locks.Close() })
	other := rdb.Conn()
	if err := other.Ping(t.Context()).Err(); err != nil { // takes a connection from the pool
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	_, err := locks.Mutex("m").TryLock(t.Context())
	var u *driver.UnavailableError
	if !errors.As(err, &u) || !u.Unsent || u.Unreached || !strings.Contains(err.Error(), "no connection was free in the pool") {
		t.Errorf("got %#v, want an unsent request, and the pool", err)
	}
}

// The error for a silent server does not name a pool filled with dibs' own requests.
func TestSilentServerIsNoFullPool(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	store := goredisstore.New(dial(t, &redis.Options{Addr: proxy.Addr(), PoolSize: 1}))
	drill.SilentServerIsNoFullPool(t, store, proxy)
}
