package redigostore_test

import (
	"context"
	"testing"

	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/redigostore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/gomodule/redigo/redis"
)

var listeners = drill.ListenOpener{
	Single: func(t testing.TB, addr string) redisconn.Listener { return redigostore.NewListener(pool(t, addr)) },
	Sentinel: func(t testing.TB, addrs []string, master string) redisconn.Listener {
		p := &redis.Pool{MaxIdle: 10, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return dialMaster(ctx, addrs, master)
		}}
		t.Cleanup(func() { p.Close() })
		return redigostore.NewListener(p)
	},
}

func TestListen(t *testing.T) { listeners.Listen(t) }

func TestListenSentinel(t *testing.T) {
	t.Parallel()
	listeners.ListenSentinel(t)
}
