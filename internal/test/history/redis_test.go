package history_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// A Redis server and its clients are consistent in real time.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for seed := range seeds(1, 5) {
		conn := redistest.Dial(server.Addr())
		t.Cleanup(conn.Close)
		record(t, redisstore.New(conn), history.Plan{Seed: seed, Ops: 10_000, PassesOver: true})
	}
}

// The same for a cluster node, where names in different slots are acquired in sequence.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterNode(t)
	for seed := range seeds(1, 5) {
		conn := redistest.Dial(server.Addr())
		t.Cleanup(conn.Close)
		record(t, redisstore.New(conn, redisstore.HiddenCluster()), history.Plan{Seed: seed, Ops: 10_000, PassesOver: true})
	}
}
