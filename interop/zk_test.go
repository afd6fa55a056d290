//go:build unix

package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
	"github.com/go-zookeeper/zk"
)

// zkPrefixes contains the prefix of each format of zkstore.
var zkPrefixes = map[string]string{"curator": "/locks", "kazoo": "/kazoo"}

// path returns the znode of the lock.
func (p process) path() string { return zkPrefixes[p.store] + "/" + p.name }

// zkPairs returns dibs beside each library.
func zkPairs(t *testing.T) []pair {
	t.Helper()
	curator, kazoo := curatorDriver(), kazooDriver()
	mutex, rwMutex := goSide("dibs.Mutex", dibsMutex), goSide("dibs.RWMutex", dibsRWMutex)
	inGo := toolVersion{version: moduleVersion(t, "github.com/go-zookeeper/zk"), runtime: goRuntime(), key: zkPrefixes["curator"] + "/order:42/…-lock-…"}
	in := func(key string) toolVersion { return toolVersion{key: key} } // its workers report the version
	return []pair{
		{"Curator InterProcessMutex", "curator", "order:mutex", false, mutex, curator.side("InterProcessMutex"), in("/locks/order:42/…-lock-…")},
		{"Curator InterProcessReadWriteLock", "curator", "order:rw", true, rwMutex, curator.side("InterProcessReadWriteLock"), in("/locks/order:42/…__WRIT__…")},
		{"go-zookeeper zk.Lock", "curator", "order:go", false, mutex, goSide("zk.Lock", zkLock), inGo},
		{"kazoo Lock", "kazoo", "order:lock", false, mutex, kazoo.side("Lock"), in("/kazoo/order:42/…__lock__…")},
		{"kazoo ReadLock, WriteLock", "kazoo", "order:rw", true, goSide("dibs.RWMutex", dibsBoth), kazoo.side("WriteLock"), in("/kazoo/order:42/…__lock__…")},
	}
}

// TestZooKeeper checks that dibs and other libraries on ZooKeeper exclude each other, also while
// processes of both sides are killed. It takes 30 s with DIBS_INTEROP, and otherwise a few seconds.
func TestZooKeeper(t *testing.T) {
	t.Parallel()
	server := startZooKeeper(t)
	rows := runPairs(t, zkPairs(t), func(t *testing.T, p pair) pairRow {
		return newPairRun(t, p, zkBackend(t, p.store, server.Endpoint())).run(t)
	})
	for _, r := range rows {
		if r.turns[0] == 0 {
			return // skipped or failed
		}
	}
	if err := writePairs(os.Getenv(resultsVariable), "zookeeper", rows); err != nil {
		t.Error(err)
	}
}

// dibs refuses a name of Curator's semaphore, which has other znodes.
func TestZooKeeperSemaphore(t *testing.T) {
	t.Parallel()
	server := startZooKeeper(t)
	curator := curatorDriver()
	curator.prepare(t)
	j := newJudge(t)
	b := zkBackend(t, "curator", server.Endpoint())
	cmd := curator.command(process{
		part: "InterProcessSemaphoreV2", store: "curator", server: b.server, name: "order:42",
		judge: j.listener.Addr().String(), side: "theirs", id: "holder", inside: time.Hour, ttl: workerTTL,
	}, exclusive, 1)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		killGroup(cmd)
		_ = cmd.Wait()
	}()
	select {
	case <-j.victim("holder"):
	case <-time.After(patience):
		t.Fatalf("Curator did not acquire its semaphore after %v", patience)
	}
	locks := dibs.New(b.open(t))
	defer locks.Close()
	for what, acquire := range map[string]func(ctx context.Context, options ...dibs.Option) (*dibs.Lease, error){
		"TryLock": locks.Mutex("order:42").TryLock,
		"Lock":    locks.Mutex("order:42").Lock,
		"reader":  locks.RWMutex("order:42").Reader().Lock,
	} {
		if _, err := acquire(t.Context()); !errors.Is(err, dibs.ErrWrongType) {
			t.Errorf("%s on the name of a semaphore: %v, want ErrWrongType", what, err)
		}
	}
}

func startZooKeeper(t *testing.T) *zktest.Server {
	t.Helper()
	s, err := zktest.Start(fmt.Sprintf("maxSessionTimeout=%d", workerTTL.Milliseconds()))
	if errors.Is(err, zktest.ErrNoServer) && os.Getenv("DIBS_REQUIRE_ZOOKEEPER") == "" {
		t.Skipf("SKIPPED: %v; `scripts/install-server zookeeper` installs both", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func zkBackend(t *testing.T, format, server string) backend {
	t.Helper()
	conn := zkConnect(t, server)
	entries := func(_ context.Context, name string) ([]string, error) {
		entries, _, err := conn.Children(zkPrefixes[format] + "/" + name)
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return entries, err
	}
	open := func(t *testing.T) driver.Store {
		t.Helper()
		s := newZooKeeperStore(format, server)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return backend{server: server, open: open, entries: entries}
}

func newZooKeeperStore(format, server string) *zkstore.Store {
	options := []zkstore.Option{zkstore.Prefix(zkPrefixes[format])}
	if format == "kazoo" {
		options = append(options, zkstore.Format(zkstore.Kazoo))
	}
	return zkstore.New([]string{server}, options...)
}

func newZooKeeperConn(server string, ttl time.Duration) (*zk.Conn, error) {
	conn, _, err := zk.Connect([]string{server}, ttl, zk.WithLogger(log.New(io.Discard, "", 0)))
	return conn, err
}

func zkConnect(t *testing.T, server string) *zk.Conn {
	t.Helper()
	conn, err := newZooKeeperConn(server, workerTTL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// acquireZooKeeper acquires a lock of the Go library.
func (p process) acquireZooKeeper() error {
	conn, err := newZooKeeperConn(p.server, p.ttl)
	if err != nil {
		return err
	}
	return zk.NewLock(conn, p.path(), zk.WorldACL(zk.PermAll)).Lock()
}

// zkLock is a turn of the Go library. It cannot be cancelled.
func zkLock(r *pairRun, t *testing.T) turn {
	t.Helper()
	conn := zkConnect(t, r.server)
	path := zkPrefixes[r.store] + "/" + r.name
	return func(context.Context) error {
		l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return fmt.Errorf("theirs: %w", err)
		}
		return errors.Join(r.enter("theirs", exclusive, 0), l.Unlock())
	}
}
