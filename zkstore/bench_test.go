package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
	"github.com/go-zookeeper/zk"
)

// A locker locks a name. It returns the function that unlocks it.
type locker func(ctx context.Context, name string) (unlock func() error, err error)

// A contestant opens a locker with a connection of its own.
type contestant struct {
	name string
	open func(b *testing.B, server, prefix string) locker
}

// contestants are dibs and what it is compared with. The first is the baseline: a request that
// creates an ephemeral, sequential znode, and one that deletes it.
var contestants = []contestant{{"bare", openBare}, {"zk.Lock", openLock}, {"dibs", openDibs}}

func openBare(b *testing.B, server, prefix string) locker {
	conn := dial(b, server)
	makeParents := onceForEach(func(name string) error { return createAll(conn, prefix, prefix+"/"+name) })
	return func(_ context.Context, name string) (func() error, error) {
		if err := makeParents(name); err != nil {
			return nil, err
		}
		path, err := conn.Create(prefix+"/"+name+"/lock-", []byte("token"), zk.FlagEphemeral|zk.FlagSequence, everybody)
		return func() error { return conn.Delete(path, -1) }, err
	}
}

func openLock(b *testing.B, server, prefix string) locker {
	conn := dial(b, server)
	return func(_ context.Context, name string) (func() error, error) {
		l := zk.NewLock(conn, prefix+"/"+name, everybody)
		return l.Unlock, l.Lock()
	}
}

func openDibs(b *testing.B, server, prefix string) locker {
	locks := dibs.New(open(b, []string{server}, zkstore.Prefix(prefix)), dibs.TTL(30*time.Second))
	b.Cleanup(func() { _ = locks.Close() })
	return func(ctx context.Context, name string) (func() error, error) {
		l, err := locks.Mutex(name).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}
}

// dial returns a connection of ZooKeeper's library, which the benchmark closes.
func dial(b *testing.B, server string) *zk.Conn {
	b.Helper()
	const timeout = 30 * time.Second
	conn, events, err := zk.Connect([]string{server}, timeout, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for range events { // it would be full
		}
	}()
	b.Cleanup(conn.Close)
	return conn
}

// createAll creates znodes unless they exist.
func createAll(conn *zk.Conn, paths ...string) error {
	for _, path := range paths {
		if _, err := conn.Create(path, nil, 0, everybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// onceForEach returns do, but for the first call of each name only.
func onceForEach(do func(name string) error) func(name string) error {
	var done sync.Map
	return func(name string) error {
		once, _ := done.LoadOrStore(name, sync.OnceValue(func() error { return do(name) }))
		return once.(func() error)()
	}
}

// eachServer runs a benchmark on a server that does not wait for its disk, and on one that does.
func eachServer(b *testing.B, run func(b *testing.B, s *zktest.Server)) {
	for _, sync := range []string{"no", "yes"} {
		b.Run("forceSync="+sync, func(b *testing.B) {
			run(b, zktest.NewServer(b, longestSession, "forceSync="+sync, "-Xmx256m"))
		})
	}
}

// BenchmarkUncontended counts pairs of lock and unlock of goroutines that lock their own names. The
// contestants take turns in slices of time, so they have the same machine. A ratio is the median of the
// slices' ratios to the baseline. Use -benchtime=50x for a run of 50 turns.
func BenchmarkUncontended(b *testing.B) {
	eachServer(b, func(b *testing.B, s *zktest.Server) {
		for _, goroutines := range []int{1, 16, 64} {
			b.Run(fmt.Sprint("goroutines=", goroutines), func(b *testing.B) { uncontended(b, s, goroutines) })
		}
	})
}

func uncontended(b *testing.B, s *zktest.Server, goroutines int) {
	const slice = 200 * time.Millisecond
	var locks []locker
	for _, c := range contestants {
		locks = append(locks, c.open(b, s.Endpoint(), newPrefix()))
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
