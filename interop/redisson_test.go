package interop

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/goredisstore"
)

// redissonMode and nodeRedissonMode are libraries beside a store in Redisson mode: both
// sides use the lock key of RLock.
var (
	redissonMode     = library{name: "Redisson, dibs in its mode", driver: "redisson", redisson: true, store: inRedissonMode}
	nodeRedissonMode = library{name: "node-redisson, dibs in its mode", driver: "node-redisson", redisson: true, store: inRedissonMode}

	inRedissonMode = []goredisstore.Option{goredisstore.Redisson()}
)

// uneven returns the columns that only Redisson's own mode has: more workers of one side.
func uneven() []column {
	parts := []string{"turns", "longest wait"}
	return []column{
		{"1 + 4 workers for 5 s, no pause", parts, saturateUneven(1, 4)},
		{"4 + 1 workers for 5 s, no pause", parts, saturateUneven(4, 1)},
	}
}

// saturateUneven returns a test with this many workers of dibs and of the library.
func saturateUneven(dibs, theirs int) func(*testing.T, *row, string) []string {
	return func(t *testing.T, r *row, name string) []string {
		l := load{counter: name + ":counter", workers: dibs, long: 5 * time.Second, ttl: 5 * time.Second, work: 3 * time.Millisecond}
		other := l
		other.workers = theirs
		mine, others := r.hammerBoth(t, name, l, other)
		r.afterLoad(t, name, l, mine, others)
		wantBothSides(t, mine, others)
		return []string{turns(mine, others), longestWait(mine, others)}
	}
}

// wantBothSides checks that neither side is kept out by the other.
func wantBothSides(t *testing.T, mine, theirs result) {
	t.Helper()
	const least = 10
	if all := mine.turns + theirs.turns; least*mine.turns < all || least*theirs.turns < all {
		t.Errorf("%d turns of dibs, and %d of theirs: want at least a tenth of them for each side", mine.turns, theirs.turns)
	}
}
