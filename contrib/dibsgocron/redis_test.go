package dibsgocron_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"
)

func redisStore(t testing.TB, addr string) driver.Store {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	})
	return goredisstore.New(rdb)
}

// 1,000 jobs run twice for 1 ms on five instances, with clocks up to 200 ms apart. minHold is half
// the interval. If the host is so busy that the spread is larger, the test is repeated with a
// longer interval.
func TestThousandShortJobsOnRedis(t *testing.T) {
	t.Parallel()
	for interval := 3 * time.Second; interval <= 12*time.Second; interval *= 2 {
		f := runOnRedis(t, 1000, interval, func(locks *dibs.Client) gocron.Locker { return dibsgocron.NewLocker(locks, interval/2) })
		if f.spread(redisInstances) < interval/2 {
			f.wantTally(t, tally{once: 2000})
			return
		}
	}
	t.Error("this host is too slow")
}

// A lock held only during the run shows the purpose of the test above.
func TestPlainLockOnRedis(t *testing.T) {
	t.Parallel()
	f := runOnRedis(t, 100, 3*time.Second, func(locks *dibs.Client) gocron.Locker { return plain{locks} })
	if f.tally().more == 0 {
		t.Error("no due time has two runs, so the other test cannot fail")
	}
}

const redisInstances = 5

func runOnRedis(t *testing.T, jobs int, interval time.Duration, locker func(locks *dibs.Client) gocron.Locker) *fleet {
	t.Helper()
	server := redistest.Start(t)
	f := &fleet{interval: interval, ahead: 50 * time.Millisecond, jobs: jobs, ticks: 2, work: time.Millisecond}
	var all []gocron.Locker
	for range redisInstances {
		all = append(all, locker(open(t, redisStore(t, server.Addr()))))
	}
	f.run(t, all)
	t.Logf("interval %v, spread %v, due times: %+v, runs by instance %v", interval, f.spread(redisInstances), f.tally(), f.where)
	return f
}
