package rueidisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

var drills = drill.Opener{
	Single: func(t testing.TB, addr string, options ...redisstore.Option) *redisstore.Store {
		return rueidisstore.New(dial(t, addr), options...)
	},
	Sentinel: func(t testing.TB, addrs []string, master string, options ...redisstore.Option) *redisstore.Store {
		return rueidisstore.New(dial(t, addrs[0], func(o *rueidis.ClientOption) {
			o.InitAddress, o.Sentinel.MasterSet = addrs, master
			o.Sentinel.TopologyRefreshInterval = 100 * time.Millisecond // see the package comment
		}), options...)
	},
	Proxied: func(t testing.TB, addr string) *redisstore.Store {
		return rueidisstore.New(dial(t, addr, func(o *rueidis.ClientOption) {
			o.AlwaysRESP2, o.DisableCache, o.ForceSingleClient, o.ClientSetInfo = true, true, true, rueidis.DisableClientSetInfo
			o.DialCtxFn = rueidisstore.DialWithoutHello
		}), redisstore.Proxy())
	},
	Warm: withIdleConns,
	Cluster: func(t testing.TB, addrs []string, options ...redisstore.Option) *redisstore.Store {
		return rueidisstore.New(dial(t, addrs[0], func(o *rueidis.ClientOption) { o.InitAddress = addrs }), options...)
	},
}

// TestRights and TestClusterRights run the same suite.
func TestStore(t *testing.T) {
	drill.Shared(t)
	t.Parallel()
	drills.Store(t)
}

func TestSentinelFailover(t *testing.T) {
	drills.SentinelFailover(t, drill.Deaths(), redisstore.WithReplicas(1, time.Second))
}

func TestSentinelLoss(t *testing.T) {
	drill.Shared(t)
	t.Parallel()
	drills.SentinelLoss(t)
}

func TestClusterMoves(t *testing.T) { drills.ClusterMoves(t) }

func TestClusterDeadMaster(t *testing.T) { drills.ClusterDeadMaster(t) }

func TestClusterLoss(t *testing.T) {
	drill.Shared(t)
	t.Parallel()
	drills.ClusterLoss(t)
}

func TestClusterSlotOnItsWay(t *testing.T) {
	t.Parallel()
	drills.ClusterSlotOnItsWay(t)
}

// With WithReplicas, lock and unlock take three round trips: see the package comment.
func TestReplicated(t *testing.T) {
	t.Parallel()
	drills.Replicas(t, 3)
}

func TestRights(t *testing.T) {
	t.Parallel()
	drills.Rights(t, "+hello", "+client|tracking")
}

func TestClusterRights(t *testing.T) {
	t.Parallel()
	drills.ClusterRights(t, "+cluster|slots", "+hello", "+client|tracking")
}

// withIdleConns returns a store on a client with idle connections in the pool for
// blocking commands.
func withIdleConns(t testing.TB, addr string, idle int) *redisstore.Store {
	client := dial(t, addr)
	// With a deadline, and not with Dedicate. Otherwise rueidis starts a reader for the connection,
	// which would notice its end.
	ctx, cancel := context.WithTimeout(t.Context(), drill.Generous)
	defer cancel()
	var busy sync.WaitGroup
	for range idle {
		busy.Go(func() {
			if err := client.Do(ctx, client.B().Blpop().Key("missing").Timeout(0.5).Build()).Error(); !rueidis.IsRedisNil(err) {
				t.Error(err)
			}
		})
	}
	busy.Wait()
	return rueidisstore.New(client)
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
	drill.Shared(t)
	t.Parallel()
	drills.SentinelWake(t)
}

func TestProxy(t *testing.T) {
	t.Parallel()
	drills.Proxy(t)
}

// rueidis pings each idle connection once a second: see docs/redis.md.
func TestIdleClients(t *testing.T) {
	t.Parallel()
	drills.IdleClients(t, "ping")
}

func TestCrowdedServer(t *testing.T) {
	t.Parallel()
	drills.Crowded(t)
}

func TestPollingWaiters(t *testing.T) {
	drill.Shared(t)
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
	drill.Shared(t)
	t.Parallel()
	drills.DelayedLinks(t)
}
