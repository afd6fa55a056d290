package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestNothingIsLeft lets 128 waiters of three clients lock a name, and some of them give up.
// Afterwards no watch, key or etcd lease is left. With DIBS_LONG=1 it takes longer, and also counts
// goroutines.
func TestNothingIsLeft(t *testing.T) {
	length, long := 3*time.Second, os.Getenv("DIBS_LONG") != ""
	if long {
		length = time.Minute
	} else {
		t.Parallel()
	}
	sharedServer(t) // skips the test without etcd
	s, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	observer := newClient(t, s)
	watches := func() float64 { return counters(t, s)["etcd_debugging_mvcc_watcher_total"] }
	if err := left(t.Context(), observer); err != nil {
		t.Fatal(err)
	}
	before, goroutines := watches(), runtime.NumGoroutine()
	contend(t, s, length)
	eventually(t, 30*time.Second, func() error {
		if now := watches(); now > before {
			return fmt.Errorf("%v watches, %v before", now, before)
		}
		if now := runtime.NumGoroutine(); long && now > goroutines {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines, %d before:\n%s", now, goroutines, stacks[:runtime.Stack(stacks, true)])
		}
		return left(t.Context(), observer)
	})
}

// contend lets three clients contend for a name, and closes them.
func contend(t *testing.T, s *etcdtest.Server, length time.Duration) {
	const waiters = 128
	var acquired, gaveUp, holders atomic.Int64
	var clients []*dibs.Client
	for range 3 {
		cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cli.Close() }()
		clients = append(clients, dibs.New(etcdstore.New(cli), dibs.TTL(3*time.Second), dibs.Timeout(10*time.Second)))
	}
	end := time.Now().Add(length)
	var group sync.WaitGroup
	for w := range waiters {
		group.Go(func() {
			m, limit := clients[w%len(clients)].Mutex("n"), 10*time.Second
			if w%8 == 0 {
				limit = time.Second / 4 // shorter than the queue
			}
			for time.Now().Before(end) {
				l, err := m.Lock(context.Background(), dibs.Wait(limit))
				switch {
				case errors.Is(err, dibs.ErrBusy):
					gaveUp.Add(1)
					continue
				case err != nil:
					t.Error(err)
					return
				}
				if holders.Add(1) > 1 {
					t.Error("two holders")
				}
				acquired.Add(1)
				holders.Add(-1)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d acquisitions; %d gave up", acquired.Load(), gaveUp.Load())
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// left returns an error if etcd has keys or leases. The base stays. The marks of cancelled requests,
// and their lease, stay for minutes.
func left(ctx context.Context, cli *clientv3.Client) error {
	const longestSession = 10 // s, of a client that ended
	keys, err := cli.Get(ctx, "lock/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range keys.Kvs {
		if key := string(kv.Key); key != "lock//base" && !strings.HasPrefix(key, "lock//cancelled/") {
			return fmt.Errorf("a key is left: %s", key)
		}
	}
	leases, err := cli.Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases {
		one, err := cli.TimeToLive(ctx, l.ID)
		if err != nil {
			return err
		}
		if one.GrantedTTL <= longestSession {
			return fmt.Errorf("a lease is left: %v", one)
		}
	}
	return nil
}
