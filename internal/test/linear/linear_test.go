package linear_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	"github.com/dibslock/dibs/internal/test/linear"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/localstore"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/dibslock/dibs/pgstore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/zkstore"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// seeds returns the number of seeds to try: more in the long tests.
func seeds() uint64 {
	if os.Getenv("DIBS_LONG") == "1" {
		return 30
	}
	return 3
}

func run(t *testing.T, store driver.Store) {
	t.Helper()
	runChecked(t, store, linear.Check)
}

func runChecked(t *testing.T, store driver.Store, check func(testing.TB, []porcupine.Operation)) {
	t.Helper()
	for seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			check(t, linear.Record(t, store, fmt.Sprintf("%d:", seed), seed, 2000))
		})
	}
}

func TestMemory(t *testing.T) { run(t, memstore.New()) }

func TestLocal(t *testing.T) {
	store, err := localstore.Open(filepath.Join(t.TempDir(), "locks.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	run(t, store)
}

func TestRedis(t *testing.T) {
	server := redistest.Start(t)
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	run(t, redisstore.New(conn))
}

func TestPostgres(t *testing.T) {
	server, err := pgtest.Start()
	skipWithout(t, err, pgtest.ErrNoServer, "DIBS_REQUIRE_POSTGRES")
	t.Cleanup(func() { _ = server.Close() })
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := pgstore.New(pool)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, store)
}

func TestEtcd(t *testing.T) {
	server, err := etcdtest.Start()
	skipWithout(t, err, etcdtest.ErrNoServer, "DIBS_REQUIRE_ETCD")
	t.Cleanup(func() { _ = server.Close() })
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	run(t, etcdstore.New(cli))
}

func TestZooKeeper(t *testing.T) {
	server, err := zktest.Start("maxSessionTimeout=60000")
	skipWithout(t, err, zktest.ErrNoServer, "DIBS_REQUIRE_ZOOKEEPER")
	t.Cleanup(func() { _ = server.Close() })
	store := zkstore.New([]string{server.Endpoint()})
	t.Cleanup(func() { _ = store.Close() })
	runChecked(t, store, linear.CheckLenient) // a request can be refused because of another try, or of a resize
}

func TestMariaDB(t *testing.T) {
	server, err := mysqltest.Start()
	skipWithout(t, err, mysqltest.ErrNoServer, "DIBS_REQUIRE_MARIADB")
	t.Cleanup(func() { _ = server.Close() })
	db, err := sql.Open("mysql", server.DSN("mysql"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(30)
	db.SetMaxIdleConns(30)
	store := mysqlstore.New(db)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, store)
}

// skipWithout skips a test on a machine without such a server, unless the server is required.
func skipWithout(t *testing.T, err, none error, required string) {
	t.Helper()
	if errors.Is(err, none) && os.Getenv(required) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// plantedBugs are bugs that the check should find:
//   - two holders: sometimes a held name is granted
//   - one too many: a shared request fits although it exceeds the limit by 1
//   - no release: sometimes a release reports success without effect
//   - impossible upgrade: a Resize is granted although it does not fit
//   - old fence: sometimes a fence is older than the last fence
var plantedBugs = []struct {
	name  string
	plant func(*bug) driver.Store
}{
	{"two holders", func(b *bug) driver.Store { return twoHolders{b} }},
	{"one too many", func(b *bug) driver.Store { return oneTooMany{b} }},
	{"no release", func(b *bug) driver.Store { return noRelease{b} }},
	{"impossible upgrade", func(b *bug) driver.Store { return impossibleUpgrade{b} }},
	{"old fence", func(b *bug) driver.Store { return oldFence{b} }},
}

func TestPlantedBugsAreFound(t *testing.T) {
	for _, p := range plantedBugs {
		t.Run(p.name, func(t *testing.T) {
			for seed := range seeds() {
				history := linear.Record(t, p.plant(&bug{Full: driver.Complete(memstore.New())}), "", seed, 1000)
				if linear.Linearizable(t, history) {
					t.Errorf("seed %d: not found", seed)
				}
			}
		})
	}
}

// A bug is the common part of the planted bugs.
type bug struct {
	*driver.Full
	calls atomic.Int64
}

// now reports whether the bug takes effect in this call.
func (b *bug) now() bool { return b.calls.Add(1)%5 == 0 }

type twoHolders struct{ *bug }

func (s twoHolders) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	a, err := s.Store.Acquire(ctx, r)
	if err == nil && !a.Held && s.now() {
		r.Name = "elsewhere"
		return s.Store.Acquire(ctx, r)
	}
	return a, err
}

type oneTooMany struct{ *bug }

func (s oneTooMany) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if !r.Exclusive() && r.Limit < driver.Unlimited {
		r.Limit++
	}
	return s.Store.Acquire(ctx, r)
}

type noRelease struct{ *bug }

func (s noRelease) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	hold := []driver.ExtendRequest{{Name: r.Name, Token: r.Token, TTL: time.Minute}}
	if s.Extend(ctx, hold)[0] == nil && s.now() {
		return true, nil
	}
	return s.Store.Release(ctx, r)
}

type impossibleUpgrade struct{ *bug }

func (s impossibleUpgrade) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	a, err := s.Full.Resize(ctx, r)
	if err == nil && !a.Held && a.Holder != "" && s.now() {
		return s.Store.Acquire(ctx, r) // it holds, so a repeated acquire returns Held
	}
	return a, err
}

type oldFence struct{ *bug }

func (s oldFence) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	a, err := s.Store.Acquire(ctx, r)
	if err == nil && a.Held && s.now() {
		a.Fence -= 1000 // microseconds
	}
	return a, err
}
