package redigostore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redigostore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
	"github.com/gomodule/redigo/redis"
)

// job is the name for locks in tests, and key is its key in Redis.
const (
	job = "job"
	key = "lock:job"
)

var timeouts = []redis.DialOption{
	redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second), redis.DialWriteTimeout(time.Second),
}

// pool returns a pool that honours contexts and is closed when the test ends.
func pool(t testing.TB, addr string, options ...redis.DialOption) *redis.Pool {
	options = append(options, timeouts...)
	p := &redis.Pool{
		MaxIdle: 10,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, options...)
		},
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// plainPool returns a pool without contexts, as is most common. It is closed when the test ends.
func plainPool(t testing.TB, addr string) *redis.Pool {
	p := &redis.Pool{
		MaxIdle: 3,
		Dial:    func() (redis.Conn, error) { return redis.Dial("tcp", addr, timeouts...) },
		TestOnBorrow: func(c redis.Conn, _ time.Time) error {
			_, err := c.Do("PING")
			return err
		},
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// open returns a dibs.Client, which is closed when the test ends. Its operation timeout is long,
// for busy machines.
func open(t testing.TB, s driver.Store, options ...dibs.Option) *dibs.Client {
	c := dibs.New(s, append([]dibs.Option{dibs.Timeout(5 * time.Second)}, options...)...)
	t.Cleanup(func() { c.Close() })
	return c
}

// conformance runs the conformance suite. Each case uses a store with its own prefix.
func conformance(t *testing.T, newStore func(redisstore.Option) *redisstore.Store) {
	t.Helper()
	var stores atomic.Int64
	storetest.Run(t, func(*testing.T) driver.Store {
		return newStore(redisstore.Prefix(fmt.Sprintf("%d:", stores.Add(1))))
	})
}

func TestStoreOnPlainPool(t *testing.T) {
	t.Parallel()
	p := plainPool(t, redistest.Start(t).Addr())
	conformance(t, func(o redisstore.Option) *redisstore.Store { return redigostore.New(p, o) })
}
