package etcdstore_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
)

// BenchmarkHeld measures what held leases cost for 60 s: the server's CPU time and requests, and the
// client's goroutines and memory.
func BenchmarkHeld(b *testing.B) {
	for _, leases := range []int{1, 10_000} {
		b.Run(fmt.Sprint("leases=", leases), func(b *testing.B) { held(b, leases) })
	}
}

func held(b *testing.B, leases int) {
	const length = time.Minute
	s := etcdtest.NewServer(b)
	locks := dibs.New(etcdstore.New(newClient(b, s)), dibs.TTL(30*time.Second))
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
	before := counters(b, s)
	time.Sleep(length)
	after := counters(b, s)
	b.ReportMetric((after["process_cpu_seconds_total"]-before["process_cpu_seconds_total"])*1e3, "server-ms")
	b.ReportMetric(after["grpc_server_handled_total"]-before["grpc_server_handled_total"], "requests")
	b.ReportMetric(after["grpc_server_msg_received_total"]-before["grpc_server_msg_received_total"], "messages")
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
