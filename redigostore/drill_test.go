package redigostore_test

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/redigostore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/gomodule/redigo/redis"
)

var drills = drill.Opener{
	Single: func(t testing.TB, addr string, options ...redisstore.Option) *redisstore.Store {
		return redigostore.New(pool(t, addr), options...)
	},
	Sentinel: func(t testing.TB, addrs []string, master string, options ...redisstore.Option) *redisstore.Store {
		p := &redis.Pool{MaxIdle: 10, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return dialMaster(ctx, addrs, master)
		}}
		t.Cleanup(func() { p.Close() })
		return redigostore.New(p, options...)
	},
	Proxied: func(t testing.TB, addr string) *redisstore.Store {
		return redigostore.New(pool(t, addr), redisstore.Proxy())
	},
	Warm: withIdleConns,
}

// TestRights runs the same suite.
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

func TestReplicated(t *testing.T) {
	t.Parallel()
	drills.Replicas(t, 2)
}

func TestRights(t *testing.T) {
	t.Parallel()
	drills.Rights(t)
}

// withIdleConns returns a store on a pool with idle connections.
func withIdleConns(t testing.TB, addr string, idle int) *redisstore.Store {
	p := pool(t, addr)
	p.MaxIdle = idle
	for range idle {
		conn := p.Get()
		if _, err := conn.Do("PING"); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	return redigostore.New(p)
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

func TestIdleClients(t *testing.T) {
	t.Parallel()
	drills.IdleClients(t)
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
