package pgstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/pgtest"
	"github.com/dibslock/dibs/pgstore"
)

// load has workers of several clients lock one name until stop, and checks that there are never
// two holders and that fences grow. A failure of the store is no error. It returns how often
// the name was held.
func load(t *testing.T, stop context.Context, open func() *pgstore.Store) int64 {
	t.Helper()
	const clients, workers = 4, 4
	var inside atomic.Int32
	var held atomic.Int64
	var last atomic.Uint64
	var group sync.WaitGroup
	for range clients {
		// No lease is lost, because the TTL is longer than the test.
		locks := dibs.New(open(), dibs.TTL(time.Minute), dibs.Timeout(10*time.Second))
		t.Cleanup(func() { _ = locks.Close() }) // leases whose release failed have gone
		for range workers {
			group.Go(func() {
				for stop.Err() == nil {
					err := locks.Mutex("n").Do(stop, func(ctx context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two concurrent holders")
						}
						if f := dibs.Fence(ctx); f <= last.Swap(f) {
							t.Error("a fence did not grow")
						}
						held.Add(1)
						inside.Add(-1)
						return nil
					})
					if err != nil && stop.Err() == nil && !errors.Is(err, dibs.ErrUnavailable) {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	return held.Load()
}

// The server forgets nothing when it is killed.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	sharedServer(t) // skips the test without a server
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	first := storeAt(t, server.URL(), pgstore.Schema("dibs"))
	held, err := dibs.New(first).Mutex("held").Lock(t.Context(), dibs.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	stop, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var faults sync.WaitGroup
	faults.Go(func() {
		for stop.Err() == nil {
			server.Kill()
			if err := server.Restart(); err != nil {
				t.Error(err)
			}
			select {
			case <-time.After(time.Second):
			case <-stop.Done():
			}
		}
	})
	n := load(t, stop, func() *pgstore.Store { return pgstore.New(newPool(t, server.URL())) })
	faults.Wait()
	if n == 0 {
		t.Error("the name was never held")
	}
	if err := held.Unlock(); err != nil {
		t.Errorf("the lease that was held all the time: %v", err)
	}
	t.Logf("held %d times", n)
}

// Each connection may be ended at any time.
func TestBackendsAreTerminated(t *testing.T) {
	t.Parallel()
	const application = "terminated"
	url := sharedServer(t).URL()
	admin := newPool(t, url)
	const schema = "terminated"
	newStoreOn(t, admin, pgstore.Schema(schema))
	stop, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var faults sync.WaitGroup
	faults.Go(func() {
		for stop.Err() == nil {
			_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND random() < 0.2", application)
			if err != nil {
				t.Error(err)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-stop.Done():
			}
		}
	})
	n := load(t, stop, func() *pgstore.Store {
		return pgstore.New(newPool(t, url+"&application_name="+application), pgstore.Schema(schema))
	})
	faults.Wait()
	if n == 0 {
		t.Error("the name was never held")
	}
	t.Logf("held %d times", n)
}

// Many processes create the schema at once.
func TestMigrate(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sharedServer(t).URL())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := pgstore.New(pool, pgstore.Schema("at once")).Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// Without notifications a waiter asks again.
func TestPoll(t *testing.T) {
	t.Parallel()
	stop, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	s := newStore(t, pgstore.Poll())
	if n := load(t, stop, func() *pgstore.Store { return s }); n < 2 {
		t.Errorf("held %d times", n)
	}
}
