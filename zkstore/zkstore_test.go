package zkstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/storetest"
	"github.com/dibslock/dibs/zkstore"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) driver.Store { return newStore(t) })
}

// In kazoo's format, all should be the same.
func TestStoreInFormatOfKazoo(t *testing.T) {
	if !isLong() {
		t.Skip("long")
	}
	storetest.Run(t, func(t *testing.T) driver.Store { return newStore(t, zkstore.Format(zkstore.Kazoo)) })
}

func TestClocks(t *testing.T) {
	t.Parallel()
	servers, prefix := endpoints(sharedServer(t)), newPrefix()
	storetest.RunClocks(t, func(t *testing.T) driver.Store { return open(t, servers, zkstore.Prefix(prefix)) })
}

var (
	serverOnce sync.Once
	server     *zktest.Server
	serverErr  error
	prefixes   atomic.Int64
)

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"lock": lockAgainAndAgain}, func() {
		for _, s := range []*zktest.Server{server, shortServer} {
			if s != nil {
				_ = s.Close()
			}
		}
	})
}

// longestSession allows the servers sessions as long as with the default tick of 2 s.
const longestSession = "maxSessionTimeout=60000"

// sharedServer returns a server that all tests of this package use, each with its own prefix.
func sharedServer(t testing.TB) *zktest.Server {
	t.Helper()
	serverOnce.Do(func() { server, serverErr = zktest.Start(longestSession) })
	zktest.SkipOrFail(t, serverErr)
	return server
}

func newPrefix() string { return fmt.Sprintf("/test-%d", prefixes.Add(1)) }

func newStore(t *testing.T, options ...zkstore.Option) *zkstore.Store {
	return open(t, endpoints(sharedServer(t)), append([]zkstore.Option{zkstore.Prefix(newPrefix())}, options...)...)
}

var (
	shortOnce   sync.Once
	shortServer *zktest.Server
	shortErr    error
)

// shortSessionServer returns another server that several tests use. Its sessions are short.
func shortSessionServer(t testing.TB) *zktest.Server {
	t.Helper()
	shortOnce.Do(func() { shortServer, shortErr = zktest.Start(shortSessions, "-Dznode.container.checkIntervalMs=300") })
	zktest.SkipOrFail(t, shortErr)
	return shortServer
}
