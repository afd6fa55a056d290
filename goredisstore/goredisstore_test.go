package goredisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// dial returns a client that is closed when the test ends.
func dial(t testing.TB, o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}
