package goredisstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

var drills = drill.Opener{
	Single: func(t testing.TB, addr string, options ...redisstore.Option) *redisstore.Store {
		return open(t, redis.NewClient(&redis.Options{Addr: addr}), options)
	},
	Sentinel: func(t testing.TB, addrs []string, master string, options ...redisstore.Option) *redisstore.Store {
		return open(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: master, SentinelAddrs: addrs}), options)
	},
	Proxied: func(t testing.TB, addr string) *redisstore.Store {
		return open(t, redis.NewClient(&redis.Options{
			Addr: addr, Protocol: 2, DisableIdentity: true,
			Dialer: goredisstore.WithoutHello(redis.NewDialer(&redis.Options{DialTimeout: time.Second})),
		}), []redisstore.Option{redisstore.Proxy()})
	},
	Warm: withIdleConns,
	Cluster: func(t testing.TB, addrs []string, options ...redisstore.Option) *redisstore.Store {
		return open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), options)
	},
}

func open(t testing.TB, rdb redis.UniversalClient, options []redisstore.Option) *redisstore.Store {
	t.Cleanup(func() { rdb.Close() })
	return goredisstore.New(rdb, options...)
}

func TestStore(t *testing.T) {
	t.Parallel()
	drills.Store(t)
}

func TestSentinelFailover(t *testing.T) {
	drill.Together(t, map[string]func(*testing.T){
		"no replicas": func(t *testing.T) { drills.SentinelFailover(t, drill.Deaths()) },
		"replicas": func(t *testing.T) {
			drills.SentinelFailover(t, drill.Deaths(), redisstore.WithReplicas(1, time.Second))
		},
	})
}

func TestSentinelLoss(t *testing.T) {
	t.Parallel()
	drills.SentinelLoss(t)
}

func TestClusterLoss(t *testing.T) {
	t.Parallel()
	drills.ClusterLoss(t)
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	drills.Replicas(t, 2)
}

func TestClusterSlotOnItsWay(t *testing.T) {
	t.Parallel()
	drills.ClusterSlotOnItsWay(t)
}

func TestRights(t *testing.T) {
	t.Parallel()
	drills.Rights(t)
}

func TestClusterMoves(t *testing.T) { drills.ClusterMoves(t) }

func TestClusterDeadMaster(t *testing.T) { drills.ClusterDeadMaster(t) }

func TestClusterRights(t *testing.T) {
	t.Parallel()
	drills.ClusterRights(t, "+cluster|slots", "+command")
}

// withIdleConns returns a store on a client with idle connections.
func withIdleConns(t testing.TB, addr string, idle int) *redisstore.Store {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: idle})
	t.Cleanup(func() { rdb.Close() })
	for range idle {
		conn := rdb.Conn()
		if err := conn.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	return goredisstore.New(rdb)
}

func TestStaleConnections(t *testing.T) {
	t.Parallel()
	drills.Stale(t)
}

func TestForgotten(t *testing.T) {
	t.Parallel()
	drills.Forgotten(t)
}

func TestSentinelWake(t *testing.T) {
	t.Parallel()
	drills.SentinelWake(t)
}

func TestProxy(t *testing.T) {
	t.Parallel()
	drills.Proxy(t)
}

func TestIdleClients(t *testing.T) {
	t.Parallel()
	drills.IdleClients(t)
}

func TestCrowdedServer(t *testing.T) {
	t.Parallel()
	drills.Crowded(t)
}

func TestPollingWaiters(t *testing.T) {
	t.Parallel()
	drills.PollingWaiters(t)
}

func TestFrozenNetwork(t *testing.T) {
	t.Parallel()
	drills.Frozen(t)
}

func TestSilentConnections(t *testing.T) {
	t.Parallel()
	drills.Silent(t)
}

func TestDelayedLinks(t *testing.T) {
	t.Parallel()
	drills.DelayedLinks(t)
}
