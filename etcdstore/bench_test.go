package etcdstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// A lock call returns the unlock call.
type locker func(ctx context.Context, name string) (unlock func() error, err error)

// lockers are dibs and the locks that it is compared with. The first is the baseline: a transaction
// that creates a key, and one that deletes it.
var lockers = []struct {
	name string
	open func(b *testing.B, s *etcdtest.Server) locker
}{
	{"bare", openBare},
	{"mutex", openMutex},
	{"dibs", openDibs},
}

func openBare(b *testing.B, s *etcdtest.Server) locker {
	cli := newClient(b, s)
	lease, err := cli.Grant(b.Context(), 60)
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context, name string) (func() error, error) {
		_, err := cli.Txn(ctx).Then(clientv3.OpPut("bare/"+name, "token", clientv3.WithLease(lease.ID))).Commit()
		return func() error {
			_, err := cli.Txn(ctx).Then(clientv3.OpDelete("bare/" + name)).Commit()
			return err
		}, err
	}
}

func openMutex(b *testing.B, s *etcdtest.Server) locker {
	session, err := concurrency.NewSession(newClient(b, s))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = session.Close() })
	return func(ctx context.Context, name string) (func() error, error) {
		m := concurrency.NewMutex(session, "mutex/"+name)
		return func() error { return m.Unlock(ctx) }, m.Lock(ctx)
	}
}

func openDibs(b *testing.B, s *etcdtest.Server) locker {
	return lockerOf(newDibs(b, s))
}

// newDibs returns a client with its own connection.
func newDibs(b *testing.B, s *etcdtest.Server) *dibs.Client {
	locks := dibs.New(etcdstore.New(newClient(b, s)), dibs.TTL(30*time.Second))
	b.Cleanup(func() { _ = locks.Close() })
	return locks
}

func lockerOf(locks *dibs.Client) locker {
	return func(ctx context.Context, name string) (func() error, error) {
		l, err := locks.Mutex(name).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}
}

// eachServer runs a benchmark on a server that does not wait for its disk, and on one that does.
func eachServer(b *testing.B, run func(b *testing.B, s *etcdtest.Server)) {
	for _, fsync := range []bool{false, true} {
		b.Run(fmt.Sprint("fsync=", fsync), func(b *testing.B) {
			s := startServer(b, fmt.Sprint("--unsafe-no-fsync=", !fsync))
			run(b, s)
		})
	}
}

// BenchmarkUncontended counts pairs of lock and unlock of goroutines that lock their own names. The
// lockers take turns in slices of time, so they have the same machine. A ratio is the median of the
// slices' ratios to the baseline. Use -benchtime=100x for a run of 100 turns.
func BenchmarkUncontended(b *testing.B) {
	eachServer(b, func(b *testing.B, s *etcdtest.Server) {
		for _, goroutines := range []int{1, 4, 16} {
			b.Run(fmt.Sprint("goroutines=", goroutines), func(b *testing.B) { uncontended(b, s, goroutines) })
		}
	})
}

func uncontended(b *testing.B, s *etcdtest.Server, goroutines int) {
	const slice = 200 * time.Millisecond
	var locks []locker
	for _, l := range lockers {
		locks = append(locks, l.open(b, s))
		pairs(b, locks[len(locks)-1], goroutines, slice/4) // connections and sessions
	}
	rates := make([][]float64, len(lockers))
	b.ResetTimer()
	for turn := range b.N {
		for i := range lockers {
			i = (i + turn) % len(lockers)
			rates[i] = append(rates[i], pairs(b, locks[i], goroutines, slice))
		}
	}
	b.StopTimer()
	for i, l := range lockers {
		ratios := make([]float64, b.N)
		for turn := range ratios {
			ratios[turn] = rates[i][turn] / rates[0][turn]
		}
		b.ReportMetric(median(rates[i]), l.name+"-pairs/s")
		if i > 0 {
			b.ReportMetric(median(ratios), l.name+"-ratio")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// pairs returns how many pairs some goroutines lock and unlock in a second.
func pairs(b *testing.B, lock locker, goroutines int, length time.Duration) float64 {
	var n atomic.Int64
	var group sync.WaitGroup
	begin := time.Now()
	for g := range goroutines {
		name := fmt.Sprint("name-", g)
		group.Go(func() {
			for time.Since(begin) < length {
				unlock, err := lock(context.Background(), name)
				if err == nil {
					err = unlock()
				}
				if err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	group.Wait()
	return float64(n.Load()) / time.Since(begin).Seconds()
}

func median[T int64 | float64 | time.Duration](values []T) T { return quantile(values, 0.5) }

func quantile[T int64 | float64 | time.Duration](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
