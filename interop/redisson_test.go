package interop

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore"
)

// redissonMode and the others are libraries beside a store in Redisson mode: both sides use
// the lock key of RLock.
var (
	redissonMode     = library{name: "Redisson, dibs in its mode", driver: "redisson", redisson: true, store: inRedissonMode}
	fairRedissonMode = library{name: "Redisson's RFairLock, dibs in its mode", driver: "redisson-fair", redisson: true, sleeps: true, store: inRedissonMode}
	nodeRedissonMode = library{name: "node-redisson, dibs in its mode", driver: "node-redisson", redisson: true, sleeps: true, store: inRedissonMode}

	inRedissonMode = []redisstore.Option{redisstore.Redisson()}
)

// uneven returns the columns only for Redisson's own mode: more workers on one side.
func uneven() []column {
	parts := []string{"turns", "longest wait"}
	return []column{
		{"1 + 4 workers for 5 s, no pause", parts, saturateUneven(1, 4)},
		{"4 + 1 workers for 5 s, no pause", parts, saturateUneven(4, 1)},
	}
}

// saturateUneven returns a test with the given numbers of dibs' and the library's workers.
func saturateUneven(dibs, theirs int) func(*testing.T, *row, string) []string {
	return func(t *testing.T, r *row, name string) []string {
		l := load{counter: name + ":counter", workers: dibs, long: 5 * time.Second, ttl: r.loadTTL(), work: 3 * time.Millisecond}
		other := l
		other.workers = theirs
		mine, others := r.hammerBoth(t, name, l, other)
		r.afterLoad(t, name, l, mine, others)
		return []string{turns(mine, others), longestWait(mine, others)}
	}
}
