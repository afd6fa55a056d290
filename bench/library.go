package main

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	redsync "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// A library uses a single client library, with the stores and pools on it. A peer can be compared
// only with a baseline on the same library: rueidis batches commands itself, go-redis and redigo do
// not.
type library interface {
	// setNX and unlock are a baseline's operations, with the least work in the library.
	setNX(ctx context.Context, name, token string, ttl time.Duration) (bool, error)
	unlock(ctx context.Context, name, token string) (deleted int64, err error)

	store() driver.Voter
	pool() redsync.Pool // redsync's name for its adapters
}

// withLibrary returns an opener that uses another library than go-redis.
func withLibrary(dial func(addr string) (library, error), open opener) opener {
	return func(s endpoint) (peer, error) {
		lib, err := dial(s.addr)
		if err != nil {
			return nil, err
		}
		s.lib = lib
		return open(s)
	}
}

type onGoredis struct{ rdb *redis.Client }

var unlockScript = redis.NewScript(unlockLua)

func (g onGoredis) setNX(ctx context.Context, name, token string, ttl time.Duration) (bool, error) {
	return g.rdb.SetNX(ctx, name, token, ttl).Result()
}

func (g onGoredis) unlock(ctx context.Context, name, token string) (int64, error) {
	return unlockScript.Run(ctx, g.rdb, []string{name}, token).Int64()
}

func (g onGoredis) store() driver.Voter { return goredisstore.New(g.rdb) }
func (g onGoredis) pool() redsync.Pool  { return redsyncgoredis.NewPool(g.rdb) }
