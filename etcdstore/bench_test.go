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

// A locker locks a name. It returns the function that unlocks it.
type locker func(ctx context.Context, name string) (unlock func() error, err error)

// A contestant opens a locker on a client of etcd.
type contestant struct {
	name  string
	alone bool // a locker is for one goroutine
	open  func(b *testing.B, cli *clientv3.Client) locker
}

// contestants are dibs and what it is compared with. The first is the baseline: a transaction that
// creates a key, and one that deletes it.
var contestants = []contestant{{"bare", false, openBare}, {"mutex", true, openMutex}, {"dibs", false, openDibs}}

func openBare(b *testing.B, cli *clientv3.Client) locker {
	lease, err := cli.Grant(b.Context(), 3600)
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context, name string) (func() error, error) {
		key := "bare/" + name
		_, err := cli.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "token", clientv3.WithLease(lease.ID))).Commit()
		return func() error {
			_, err := cli.Txn(ctx).Then(clientv3.OpDelete(key)).Commit()
			return err
		}, err
	}
}

func openMutex(b *testing.B, cli *clientv3.Client) locker {
	session, err := concurrency.NewSession(cli)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = session.Close() })
	return func(ctx context.Context, name string) (func() error, error) {
		m := concurrency.NewMutex(session, "mutex/"+name)
		return func() error { return m.Unlock(ctx) }, m.Lock(ctx)
	}
}

func openDibs(b *testing.B, cli *clientv3.Client) locker {
	locks := dibs.New(etcdstore.New(cli), dibs.TTL(30*time.Second))
	b.Cleanup(func() { _ = locks.Close() })
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
			s := etcdtest.NewServer(b, fmt.Sprint("--unsafe-no-fsync=", !fsync))
			run(b, s)
		})
	}
}

// BenchmarkUncontended counts pairs of lock and unlock of goroutines that lock their own names. The
// contestants take turns in slices of time, so they have the same machine. A ratio is the median of the
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
	for _, c := range contestants {
		locks = append(locks, c.open(b, newClient(b, s)))
		pairs(b, locks[len(locks)-1], goroutines, slice/4) // connections and sessions
	}
	rates := make([][]float64, len(contestants))
	b.ResetTimer()
	for turn := range b.N {
		for i := range contestants {
			i = (i + turn) % len(contestants)
			rates[i] = append(rates[i], pairs(b, locks[i], goroutines, slice))
		}
	}
	b.StopTimer()
	for i, c := range contestants {
		ratios := make([]float64, b.N)
		for turn := range ratios {
			ratios[turn] = rates[i][turn] / rates[0][turn]
		}
		b.ReportMetric(median(rates[i]), c.name+"-pairs/s")
		if i > 0 {
			b.ReportMetric(median(ratios), c.name+"-ratio")
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
