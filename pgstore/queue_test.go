package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
)

// Waiters joining and leaving at any time should be counted, and the name should have at most one
// holder.
func TestQueueIsCounted(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	s := newStoreOn(t, pool, pgstore.Schema("counted"))
	var holders, acquired atomic.Int64
	var running sync.WaitGroup
	until := time.Now().Add(2 * time.Second)
	for range 2 { // clients, so that hand-offs cross connections
		locks := dibs.New(s, dibs.Timeout(10*time.Second))
		t.Cleanup(func() { _ = locks.Close() })
		for range 8 {
			running.Go(func() {
				for time.Now().Before(until) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+rand.IntN(300))*time.Millisecond)
					l, err := locks.Mutex("n").Lock(ctx)
					cancel()
					if err != nil {
						continue
					}
					acquired.Add(1)
					if holders.Add(1) != 1 {
						t.Error("two holders")
					}
					holders.Add(-1)
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	running.Wait()
	if acquired.Load() == 0 {
		t.Error("nothing was acquired")
	}
	t.Log(acquired.Load())
	var different int
	err := pool.QueryRow(t.Context(), "SELECT count(*) FROM counted.names n WHERE waiting <> (SELECT count(*) FROM counted.waiters w WHERE w.name = n.name)").Scan(&different)
	if err != nil || different != 0 {
		t.Errorf("the count of waiters is wrong: %v", err)
	}
}

// newQueue returns a new store's queue.
func newQueue(t *testing.T) sqldrill.Queue {
	t.Helper()
	schema := fmt.Sprintf("queue_%d", schemas.Add(1))
	db, err := sql.Open("pgx", sharedServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return sqldrill.Queue{
		Store: newStore(t, pgstore.Schema(schema)), DB: db, Tables: schema + ".", Now: schema + ".now_v1()",
		Blocked: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%" + schema + "%'",
	}
}

// A heartbeat does not wait for the name, which others have locked.
func TestHeartbeatDoesNotLockTheName(t *testing.T) {
	t.Parallel()
	newQueue(t).HeartbeatsLockNothing(t)
}

func TestHeartbeatDoesNotReviveAWaiter(t *testing.T) {
	t.Parallel()
	newQueue(t).HeartbeatDoesNotRevive(t)
}

func TestHeartbeatKeepsAnEntry(t *testing.T) {
	t.Parallel()
	newQueue(t).HeartbeatKeepsAnEntry(t)
}

func TestHandoffBeginsWithItsEntry(t *testing.T) {
	t.Parallel()
	newQueue(t).HandoffBeginsWithItsEntry(t)
}

// A process with many callers should serve them all.
func TestManyCallersOfOneName(t *testing.T) {
	callers := 200
	if os.Getenv("DIBS_LONG") == "1" {
		callers = 1000
	}
	sqldrill.ServesCallers(t, newStore(t), callers)
}
