package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/goredisstore"
)

// redissonMode is Redisson beside a store in Redisson mode: both use RLock.
var redissonMode = library{name: "redisson (mode)", driver: "redisson", store: []goredisstore.Option{goredisstore.Redisson()}}

// redissonColumns are the columns of redissonMode, which has no readers and no permits.
func redissonColumns() [][]column {
	return [][]column{
		correctness: {
			{"dibs first", dibsFirst},
			{"theirs first", theirsFirst},
			{"theirs expires", theirsExpires},
			{"dibs expires", dibsExpires},
			{"their late release", theirLateRelease},
			{"dibs' late release", dibsLateRelease},
			{"their late extension", theirLateExtension},
			{"forced release", forcedRelease},
			{"their forced release", theirForcedRelease},
		},
		waiting: {
			{"their waiter", theirWaiter},
			{"dibs' waiter", dibsWaiter},
			{"4 + 4 workers for 5 s", workTogether},
			{"8 of theirs for 3 s", workAlone},
		},
		saturation: {
			{"4 + 4 workers for 10 s, no pause", saturate(4, 4)},
			{"1 + 4 workers for 10 s, no pause", saturate(1, 4)},
			{"4 + 1 workers for 10 s, no pause", saturate(4, 1)},
		},
	}
}

// saturate returns a column with this many workers of dibs and of the library.
func saturate(dibs, theirs int) func(*testing.T, *row, string) string {
	return func(t *testing.T, r *row, name string) string {
		l := load{counter: name + ":counter", workers: dibs, long: 10 * time.Second, ttl: 5 * time.Second, work: 3 * time.Millisecond}
		other := l
		other.workers = theirs
		mine, others := r.hammerBoth(t, name, l, other)
		r.wantNoFailures(t, mine, others)
		const most = 3
		if mine.longest > most*others.longest || others.longest > most*mine.longest {
			t.Errorf("longest waits %v and %v: want at most %d times the other's", mine.longest, others.longest, most)
		}
		return fmt.Sprintf("%d + %d turns, longest wait %.2f s and %.2f s", mine.turns, others.turns, mine.longest.Seconds(), others.longest.Seconds())
	}
}
