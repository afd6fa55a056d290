package goredisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/go-redis/v9"
)

func listeners(protocol int) drill.ListenOpener {
	server := func(t testing.TB, rdb *redis.Client) redisconn.Listener {
		t.Cleanup(func() { rdb.Close() })
		return goredisstore.NewServerListener(rdb)
	}
	return drill.ListenOpener{
		Single: func(t testing.TB, addr string) redisconn.Listener {
			return server(t, redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol}))
		},
		Sentinel: func(t testing.TB, addrs []string, master string) redisconn.Listener {
			return server(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: master, SentinelAddrs: addrs, Protocol: protocol}))
		},
		Cluster: func(t testing.TB, addrs []string) redisconn.Listener {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Protocol: protocol})
			t.Cleanup(func() { rdb.Close() })
			return goredisstore.NewClusterListener(rdb)
		},
	}
}

func TestListen(t *testing.T) { listeners(3).Listen(t) }

func TestListenInRESP2(t *testing.T) { listeners(2).Listen(t) }

func TestListenSentinel(t *testing.T) {
	t.Parallel()
	listeners(3).ListenSentinel(t)
}

func TestListenCluster(t *testing.T) {
	t.Parallel()
	listeners(3).ListenCluster(t)
}
