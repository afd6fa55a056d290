package dibsgocron_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgocron"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/go-co-op/gocron/v2"
)

// plain is a locker that does not reserve names, like most lockers for gocron.
type plain struct{ locks *dibs.Client }

func (p plain) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	lease, err := p.locks.Mutex(name).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	return plainLock{lease}, nil
}

type plainLock struct{ lease *dibs.Lease }

func (l plainLock) Unlock(context.Context) error { return l.lease.Unlock() }

func open(t testing.TB, store driver.Store, options ...dibs.Option) *dibs.Client {
	locks := dibs.New(store, options...)
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// lockers returns n lockers, each with its own client.
func lockers(t testing.TB, n int, store driver.Store, minHold time.Duration) []gocron.Locker {
	all := make([]gocron.Locker, n)
	for i := range all {
		all[i] = dibsgocron.NewLocker(open(t, store), minHold)
	}
	return all
}

// Each due run happens exactly once for each minHold between the spread and the interval
// minus the spread, whichever instance is late.
func TestExactlyOnce(t *testing.T) {
	const interval, ahead, late, instances = time.Minute, time.Second, 4 * time.Second, 5
	const spread = (instances-1)*ahead + late
	for _, minHold := range []time.Duration{spread, interval / 2, interval - spread} {
		t.Run(minHold.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seed := rand.Uint64()
				random := rand.New(rand.NewPCG(seed, 0))
				f := fleet{interval: interval, ahead: ahead, jobs: 20, ticks: 50, work: time.Millisecond}
				delays := make([]time.Duration, (f.ticks+3)*instances)
				for i := range delays {
					delays[i] = time.Duration(random.Int64N(int64(late)))
				}
				f.delay = func(instance, tick int) time.Duration { return delays[(tick+1)*instances+instance] }
				f.run(t, lockers(t, instances, memstore.New(), minHold))
				f.wantTally(t, tally{once: 1000})
				t.Logf("seed %d, runs by instance %v", seed, f.where)
			})
		})
	}
}

// A lock without a reservation is free again before the other instances request it.
func TestPlainLockRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := fleet{interval: time.Minute, ahead: 10 * time.Millisecond, jobs: 20, ticks: 50, work: time.Millisecond}
		f.run(t, []gocron.Locker{plain{open(t, store)}, plain{open(t, store)}})
		f.wantTally(t, tally{more: 1000})
	})
}

// NewLocker's bounds should be needed. A job runs twice if minHold is below the spread, here with
// clocks 10 s apart.
func TestMinHoldBelowTheSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{interval: time.Minute, ahead: 10 * time.Second, jobs: 1, ticks: 10, work: time.Millisecond}
		f.run(t, lockers(t, 2, memstore.New(), 9*time.Second))
		f.wantTally(t, tally{more: 10})
	})
}

// If minHold is too close to the interval, a due time after a late due time should have no run.
func TestMinHoldTooCloseToTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lateAtEvenTicks := func(_, tick int) time.Duration { return time.Duration(1-tick%2) * 10 * time.Second }
		f := fleet{interval: time.Minute, jobs: 1, ticks: 10, work: time.Millisecond, delay: lateAtEvenTicks}
		f.run(t, lockers(t, 2, memstore.New(), 51*time.Second))
		f.wantTally(t, tally{once: 5, never: 5})
	})
}

// A run longer than the interval keeps its lock: the due times during the run are skipped, and no
// two runs overlap.
func TestLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{interval: time.Minute, ahead: time.Second, jobs: 1, ticks: 9, work: 150 * time.Second}
		f.run(t, lockers(t, 3, memstore.New(), 30*time.Second))
		f.wantTally(t, tally{once: 3, never: 6})
	})
}
