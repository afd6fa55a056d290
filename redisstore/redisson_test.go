package redisstore_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

// notInRedissonMode are the cases of the conformance suite that need readers or permits, which
// Redisson mode rejects. docs/redisson.md has the same list.
var notInRedissonMode = []string{
	"limit", "exclusive", "own limit", "shared expiry", "shared owner only", "grant together", "heavy first waiter",
	"heavy first waiter leaves", "reserve shared", "resize", "resize needs a lease", "revoke", "inspect shared", "shared clients",
	"all or none", "wanted shared", "wanted by many",
}

func TestStoreInRedissonMode(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		start   func(testing.TB) *redistest.Server
		options []redisstore.Option
	}{
		"one server":      {func(t testing.TB) *redistest.Server { return redistest.Start(t) }, []redisstore.Option{redisstore.Redisson()}},
		"cluster":         {func(t testing.TB) *redistest.Server { return redistest.StartClusterNode(t) }, []redisstore.Option{redisstore.Sharded(), redisstore.Redisson()}},
		"with the tokens": {func(t testing.TB) *redistest.Server { return redistest.Start(t) }, []redisstore.Option{redisstore.RedissonFences()}},
	} {
		t.Run(what, func(t *testing.T) {
			server := test.start(t)
			var stores atomic.Int32
			for _, c := range storetest.Cases() {
				if slices.Contains(notInRedissonMode, c.Name) {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					c.Run(t, openRedisson(t, server, &stores, test.options))
				})
			}
		})
	}
}

func openRedisson(t *testing.T, server *redistest.Server, stores *atomic.Int32, options []redisstore.Option) driver.Store {
	prefix := fmt.Sprintf("%d:", stores.Add(1))
	return open(t, server, append(slices.Clip(options), redisstore.Prefix(prefix))...)
}
