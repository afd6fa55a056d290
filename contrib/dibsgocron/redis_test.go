package dibsgocron_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/redistest"
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

// 1,000 jobs of 1 ms run every 3 s on five instances, whose clocks are up to 200 ms apart.
// At the same time, 100 jobs with a plain lock show what the reservation is for.
func TestThousandShortJobsOnRedis(t *testing.T) {
	t.Parallel()
	runOn := func(t *testing.T, jobs int, locker func(locks *dibs.Client) gocron.Locker) *fleet {
		t.Parallel()
		server := redistest.Start(t)
		f := &fleet{interval: 3 * time.Second, ahead: 50 * time.Millisecond, jobs: jobs, ticks: 2, work: time.Millisecond}
		var all []gocron.Locker
		for range 5 {
			all = append(all, locker(open(t, redisStore(t, server.Addr()))))
		}
		f.run(t, all)
		t.Logf("due times: %+v; runs by instance %v, the latest %v after its due time", f.tally(), f.where, f.latest)
		return f
	}
	t.Run("Locker", func(t *testing.T) {
		f := runOn(t, 1000, func(locks *dibs.Client) gocron.Locker { return dibsgocron.NewLocker(locks, 1500*time.Millisecond) })
		f.wantTally(t, tally{once: 2000})
	})
	t.Run("PlainLock", func(t *testing.T) {
		f := runOn(t, 100, func(locks *dibs.Client) gocron.Locker { return plain{locks} })
		if f.tally().more == 0 {
			t.Error("no due time has two runs, so the other test cannot fail")
		}
	})
}
