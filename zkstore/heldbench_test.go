//go:build linux

package zkstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
)

// BenchmarkHeld measures what held leases cost for 20 s: the processor time and the requests of the
// server, and the processor time, goroutines and memory of the client. Before, it waits
// until the compiler of the server has ended.
func BenchmarkHeld(b *testing.B) {
	for _, leases := range []int{1, 10_000} {
		b.Run(fmt.Sprint("leases=", leases), func(b *testing.B) { held(b, leases) })
	}
}

func held(b *testing.B, leases int) {
	const settle, length = 10 * time.Second, 20 * time.Second
	s := zktest.NewServer(b, longestSession, "-Xmx256m")
	locks := dibs.New(open(b, []string{s.Endpoint()}, zkstore.Prefix("/held")), dibs.TTL(30*time.Second))
	defer func() { _ = locks.Close() }()
	goroutines, heap := used()
	const concurrent = 16
	var group sync.WaitGroup
	for g := range concurrent {
		group.Go(func() {
			for i := g; i < leases; i += concurrent {
				if _, err := locks.Mutex(fmt.Sprint("held-", i)).Lock(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	nowGoroutines, nowHeap := used()
	b.ReportMetric(float64(nowGoroutines-goroutines)/float64(leases), "goroutines/lease")
	b.ReportMetric(float64(nowHeap-heap)/float64(leases), "B/lease")
	time.Sleep(settle)
	before, server, client := counters(b, s), serverTime(b, s), ownTime(b)
	time.Sleep(length)
	b.ReportMetric(float64((serverTime(b, s) - server).Milliseconds()), "server-ms")
	b.ReportMetric(float64((ownTime(b) - client).Milliseconds()), "client-ms")
	after := counters(b, s).since(before)
	b.ReportMetric(after.received, "requests")
	b.ReportMetric(after.writes, "writes")
	b.ReportMetric(0, "ns/op")
}

// used returns the goroutines and the memory in use.
func used() (goroutines int, bytes uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc + m.StackInuse
}

// ownTime returns the processor time of this process.
func ownTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime returns the processor time of a server's threads, in nanoseconds unlike that of the process.
func serverTime(b *testing.B, s *zktest.Server) (sum time.Duration) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.Pid()))
	must(b, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.Atoi(first)
		must(b, err)
		sum += time.Duration(n)
	}
	return sum
}
