package history_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/redisstore"
)

// queuePlans are events for waiters: each separately, and all together.
func queuePlans(seed uint64) map[string]history.QueuePlan {
	return map[string]history.QueuePlan{
		"nothing":     {Seed: seed},
		"silences":    {Seed: seed, Silences: true},
		"stalls":      {Seed: seed, Stalls: true},
		"forsaken":    {Seed: seed, Forsaken: true},
		"clock steps": {Seed: seed, Clock: true},
		"all":         {Seed: seed, Silences: true, Stalls: true, Forsaken: true, Clock: true},
	}
}

// bubbleTime is the time in a testing/synctest bubble. Its clock cannot be set.
type bubbleTime struct{}

func (bubbleTime) Pass(d time.Duration) { time.Sleep(d) }
func (bubbleTime) Step(time.Duration)   {}

// Waiters should keep their places and be served, though some are silent and the store stalls.
func TestQueuesInMemory(t *testing.T) {
	inBubble(t, seeds(5, 400), func(t *testing.T, seed uint64) {
		for what, plan := range queuePlans(seed) {
			runQueues(t, what, memstore.New(), bubbleTime{}, plan)
		}
	})
}

func runQueues(t *testing.T, what string, store driver.Store, passing history.Time, plan history.QueuePlan) {
	t.Helper()
	violations, err := history.RunQueues(t.Context(), store, passing, plan)
	if err != nil {
		t.Errorf("%s, seed %d: %v", what, plan.Seed, err)
	}
	for _, v := range violations {
		t.Errorf("%s, seed %d: %v", what, plan.Seed, v)
	}
}

// serverTime is a Redis server's time.
type serverTime struct {
	t    *testing.T
	conn *redistest.ClockConn
}

func (s serverTime) Pass(d time.Duration) { s.conn.Pass(s.t, d) }
func (s serverTime) Step(d time.Duration) { s.conn.Step(d) }

// The same on a Redis server, whose clock is set.
func TestQueuesOnRedis(t *testing.T) { queuesOn(t, redistest.Start(t), seeds(1, 20), queuePlans) }

// The same on a cluster node.
func TestQueuesOnRedisCluster(t *testing.T) {
	plans := queuePlans
	if seeds(0, 1) == 0 {
		plans = func(seed uint64) map[string]history.QueuePlan {
			return map[string]history.QueuePlan{"all": queuePlans(seed)["all"]}
		}
	}
	queuesOn(t, redistest.StartClusterNode(t), seeds(1, 20), plans, redisstore.Sharded())
}

func queuesOn(t *testing.T, server *redistest.Server, seeds uint64, plans func(seed uint64) map[string]history.QueuePlan, options ...redisstore.Option) {
	for seed := range seeds {
		for what, plan := range plans(seed) {
			server.MustCmd(t, "FLUSHALL")
			conn := redistest.DialClock(t, server.Addr())
			plan.Forgets = true
			runQueues(t, what, redisstore.New(conn, options...), serverTime{t, conn}, plan)
			conn.Close()
		}
	}
}
