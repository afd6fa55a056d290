package goredis_test

import (
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore/goredis"
	"github.com/dibslock/dibs/storetest"
	"github.com/redis/go-redis/v9"
)

// dial returns a client that lives as long as the test.
func dial(t testing.TB, o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) dibs.Store {
		server := redistest.Start(t)
		return goredis.New(dial(t, &redis.Options{Addr: server.Addr()}))
	})
}

func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) dibs.Store {
		server := redistest.StartClusterNode(t)
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
		t.Cleanup(func() { rdb.Close() })
		return goredis.New(rdb)
	})
}
