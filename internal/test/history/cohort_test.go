package history_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/redisstore"
)

// Clients with cohorts are consistent with each other, and with other primitives on the same
// names.
func TestCohorts(t *testing.T) {
	inBubble(t, seeds(4, 40), func(t *testing.T, seed uint64) {
		record(t, memstore.New(), history.Plan{Seed: seed, Ops: 10_000, ReuseTokens: true, Cohorts: true, Instant: true})
	})
}

// The same when requests, replies and events overtake each other.
func TestCohortsDelayedMessages(t *testing.T) {
	inBubble(t, seeds(4, 40), func(t *testing.T, seed uint64) {
		store := delayed(memstore.New(), seed, 100*time.Microsecond<<(seed%6), faults{})
		record(t, store, history.Plan{Seed: seed, Ops: 10_000, ReuseTokens: true, Cohorts: true})
	})
}

// The same with lingering leases: an unused name can be busy.
func TestCohortsLinger(t *testing.T) {
	inBubble(t, seeds(4, 40), func(t *testing.T, seed uint64) {
		store := delayed(memstore.New(), seed, 100*time.Microsecond<<(seed%6), faults{losses: int(seed % 2 * 5)})
		h, _ := history.Record(t.Context(), store, history.Plan{
			Seed: seed, Ops: 10_000, ReuseTokens: true, Cohorts: true, Linger: time.Millisecond << (seed % 4),
		})
		for _, v := range history.Check(h) {
			if v.Rule != history.Busy && (v.Rule != history.Leftover || seed%2 == 0) {
				t.Errorf("seed %d: %v", seed, v)
			}
		}
	})
}

// The same when connections are reset, and their requests arrive late.
func TestCohortsDeliveredLate(t *testing.T) {
	inBubble(t, seeds(4, 40), func(t *testing.T, seed uint64) {
		store := delayed(memstore.New(), seed, time.Millisecond, faults{resets: 40, refusals: 10, latest: 700 * time.Millisecond})
		h, err := history.Record(t.Context(), store, history.Plan{
			Seed: seed, Ops: 10_000, ReuseTokens: true, KeepClients: true, Cohorts: true, Linger: 2 * time.Millisecond,
		})
		if err != nil {
			t.Error(err)
		}
		store.late.Wait()
		for _, v := range history.Check(h) {
			if v.Rule != history.Busy {
				t.Errorf("seed %d: %v", seed, v)
			}
		}
	})
}

// A Redis server and clients with cohorts should be consistent in real time.
func TestCohortsOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for seed := range seeds(1, 5) {
		conn := redistest.Dial(server.Addr())
		t.Cleanup(conn.Close)
		record(t, redisstore.New(conn), history.Plan{Seed: seed, Ops: 10_000, Cohorts: true, PassesOver: true})
	}
}
