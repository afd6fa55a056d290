package etcdstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	"github.com/dibslock/dibs/storetest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) driver.Store { return newStore(t) })
}

func TestClocks(t *testing.T) {
	prefix := newPrefix()
	storetest.RunClocks(t, func(t *testing.T) driver.Store {
		return etcdstore.New(newClient(t, sharedServer(t)), etcdstore.Prefix(prefix))
	})
}

var (
	serverOnce sync.Once
	server     *etcdtest.Server
	serverErr  error
	prefixes   atomic.Int64
)

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"lock": lockAgainAndAgain}, func() {
		if server != nil {
			_ = server.Close()
		}
	})
}

// sharedServer returns a server that all tests of this package use, each with its own prefix.
func sharedServer(t *testing.T) *etcdtest.Server {
	t.Helper()
	serverOnce.Do(func() { server, serverErr = etcdtest.Start() })
	etcdtest.SkipOrFail(t, serverErr)
	return server
}

func newPrefix() string { return fmt.Sprintf("test-%d/", prefixes.Add(1)) }

// newClient returns a client of etcd, which the test closes.
func newClient(t testing.TB, servers ...*etcdtest.Server) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, s := range servers {
		endpoints = append(endpoints, s.Endpoint())
	}
	return newClientWith(t, clientv3.Config{Endpoints: endpoints})
}

func newClientWith(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.DialTimeout, config.Logger = 5*time.Second, zap.NewNop()
	cli, err := clientv3.New(config)
	must(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func newStore(t *testing.T) *etcdstore.Store {
	return etcdstore.New(newClient(t, sharedServer(t)), etcdstore.Prefix(newPrefix()))
}
