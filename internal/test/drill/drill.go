package drill

import (
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

// An Opener opens stores with an adapter. A function is nil if the library does not
// support the deployment.
type Opener struct {
	Single   func(t testing.TB, addr string, options ...redisstore.Option) *redisstore.Store
	Sentinel func(t testing.TB, addrs []string, master string, options ...redisstore.Option) *redisstore.Store
	Cluster  func(t testing.TB, addrs []string, options ...redisstore.Option) *redisstore.Store

	// Proxied opens a store behind a proxy that accepts only commands with a key.
	Proxied func(t testing.TB, addr string) *redisstore.Store

	// Warm is Single for a client with this many idle connections.
	Warm func(t testing.TB, addr string, idle int) *redisstore.Store
}

// Shared skips a scenario that depends little on the adapter's library: goredisstore runs it in
// make test, and the other adapters with DIBS_LONG=1.
func Shared(t *testing.T) {
	t.Helper()
	if !redistest.Long() {
		t.Skip("goredisstore runs it in make test; here it needs DIBS_LONG=1")
	}
}

// Together runs scenarios at the same time. Each mostly waits: for a server to notice a failure, or
// for a lease.
func Together(t *testing.T, scenarios map[string]func(*testing.T)) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t)
		})
	}
}

// Store runs the conformance suite on each deployment. The cases share its servers and a single
// client.
func (o Opener) Store(t *testing.T) {
	conformance := func(t *testing.T, open func(options ...redisstore.Option) *redisstore.Store) {
		storetest.Run(t, func(t *testing.T) driver.Store { return open(redisstore.Prefix(t.Name() + ":")) })
	}
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		conformance(t, func(options ...redisstore.Option) *redisstore.Store { return o.Single(t, server.Addr(), options...) })
		storetest.RunClocks(t, func(t *testing.T) driver.Store { return o.Single(t, server.Addr()) })
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartSentinels(t, 2, 3)
		conformance(t, func(options ...redisstore.Option) *redisstore.Store {
			return o.Sentinel(t, s.Addrs(), s.MasterName, options...)
		})
	})
	o.onCluster(t, func(t *testing.T) {
		c := redistest.StartCluster(t, 3, 1)
		conformance(t, func(options ...redisstore.Option) *redisstore.Store { return o.Cluster(t, c.Addrs(), options...) })
	})
}

// onCluster runs a part of a scenario if the library supports clusters.
func (o Opener) onCluster(t *testing.T, part func(t *testing.T)) {
	if o.Cluster == nil {
		return
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		part(t)
	})
}
