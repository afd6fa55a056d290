// Package lifecycle creates a dibs client with fx, or with providers for wire. Its code is in
// docs/recipes/fx-and-wire.md.
package lifecycle

import (
	"net/http"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
)

// Module provides the Redis client and the dibs client.
var Module = fx.Module("locks", fx.Provide(NewRedis, NewLocks))

// NewRedis provides the connections. They close after everything that uses them.
func NewRedis(lifecycle fx.Lifecycle, options *redis.Options) *redis.Client {
	rdb := redis.NewClient(options)
	lifecycle.Append(fx.StopHook(rdb.Close))
	return rdb
}

// NewLocks provides the locks. It depends on rdb, so its hook runs before NewRedis's.
func NewLocks(lifecycle fx.Lifecycle, rdb *redis.Client) *dibs.Client {
	locks := dibs.New(goredisstore.New(rdb))
	lifecycle.Append(fx.StopHook(locks.Shutdown))
	return locks
}

// Ready is a readiness probe's handler.
func Ready(locks *dibs.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := locks.Check(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// ProvideRedis is a provider with a cleanup function, for wire.
func ProvideRedis(options *redis.Options) (*redis.Client, func()) {
	rdb := redis.NewClient(options)
	return rdb, func() { rdb.Close() }
}

// ProvideLocks is a provider with a cleanup function, for wire.
func ProvideLocks(rdb *redis.Client) (*dibs.Client, func()) {
	locks := dibs.New(goredisstore.New(rdb))
	return locks, func() { locks.Close() }
}
