package etcdstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/etcdtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// BenchmarkHandoff measures hand-offs: from the call of unlock until the next waiter's lock returns.
// An operation is an acquisition. A holder keeps the name for 2 ms, and locks it again at once. The
// waiters use four clients; a concurrency.Mutex needs one for each waiter.
//
// With a delay, each request and reply takes 1 ms longer, and a holder keeps the name for 10 ms. Then rtt is a hand-off in round trips,
// without the commit of the delete. A round trip and a commit are measured in the same run.
func BenchmarkHandoff(b *testing.B) {
	eachServer(b, func(b *testing.B, s *etcdtest.Server) { handoffs(b, s, s.Endpoint(), 2*time.Millisecond) })
	b.Run("delayed", func(b *testing.B) {
		s := etcdtest.NewServer(b)
		p := redistest.NewProxy(b, s.Endpoint())
		p.Delay(time.Millisecond)
		handoffs(b, s, p.Addr(), 10*time.Millisecond)
	})
}

func handoffs(b *testing.B, s *etcdtest.Server, endpoint string, hold time.Duration) {
	for _, waiters := range []int{2, 16, 128} {
		for _, c := range contestants[1:] {
			b.Run(fmt.Sprintf("waiters=%d/%s", waiters, c.name), func(b *testing.B) { handoff(b, s, endpoint, hold, c, waiters) })
		}
	}
}

func handoff(b *testing.B, s *etcdtest.Server, endpoint string, hold time.Duration, c contestant, waiters int) {
	config := clientv3.Config{Endpoints: []string{endpoint}}
	var locks []locker
	for range min(waiters, 4) {
		locks = append(locks, c.open(b, newClientWith(b, config)))
	}
	for len(locks) < waiters && c.alone {
		locks = append(locks, c.open(b, newClientWith(b, config)))
	}
	l := &line{left: b.N, hold: hold, name: fmt.Sprint("handoff-", time.Now().UnixNano())}
	before := counters(b, s)
	var group sync.WaitGroup
	for w := range waiters {
		group.Go(func() { l.wait(b, locks[w%len(locks)]) })
	}
	ends := make(chan struct{})
	var trips []pathTimes
	var sampler sync.WaitGroup
	sampler.Go(func() { trips = samplePath(b, newClientWith(b, config), ends) })
	group.Wait()
	close(ends)
	sampler.Wait()
	after := counters(b, s)
	n := float64(len(l.took) + 1)
	report := func(unit string, metrics ...string) {
		sum := 0.0
		for _, m := range metrics {
			sum += after[m] - before[m]
		}
		b.ReportMetric((sum-float64(len(trips))*sampled[unit])/n, unit+"/acq")
	}
	report("writes", "etcd_mvcc_put_total", "etcd_mvcc_delete_total")
	report("requests", "grpc_server_handled_total")
	report("messages", "grpc_server_msg_received_total", "grpc_server_msg_sent_total")
	taken := l.took[min(waiters, len(l.took)-1):] // without the start
	b.ReportMetric(float64(median(taken).Microseconds()), "p50-µs")
	b.ReportMetric(float64(quantile(taken, .99).Microseconds()), "p99-µs")
	var trip, commit []time.Duration
	for _, t := range trips {
		trip, commit = append(trip, t.trip), append(commit, t.write-t.trip)
	}
	if len(trips) > 0 {
		b.ReportMetric(float64(median(taken)-median(commit))/float64(median(trip)), "rtt")
		b.ReportMetric(float64(median(commit).Microseconds()), "commit-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// sampled contains, for each unit, how much a sample of samplePath adds to the counters.
var sampled = map[string]float64{"writes": 1, "requests": 2, "messages": 4}

// A line is a queue of waiters for a name.
type line struct {
	name string
	hold time.Duration

	mu       sync.Mutex
	left     int
	released time.Time // when the last holder called unlock
	took     []time.Duration
}

// wait locks and unlocks the name until all acquisitions are done.
func (l *line) wait(b *testing.B, lock locker) {
	for {
		unlock, err := lock(context.Background(), l.name)
		now := time.Now()
		if err != nil {
			b.Error(err)
			return
		}
		l.mu.Lock()
		if !l.released.IsZero() {
			l.took = append(l.took, now.Sub(l.released))
		}
		l.mu.Unlock()
		time.Sleep(l.hold)
		l.mu.Lock()
		l.left--
		done := l.left < 0
		l.released = time.Now()
		l.mu.Unlock()
		if err := unlock(); err != nil {
			b.Error(err)
			return
		}
		if done {
			return
		}
	}
}

// pathTimes are the times of a request that etcd answers at once, and of one that it commits.
type pathTimes struct{ trip, write time.Duration }

// samplePath measures requests until the benchmark ends.
func samplePath(b *testing.B, cli *clientv3.Client, ends <-chan struct{}) (samples []pathTimes) {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	ctx := context.Background()
	for {
		select {
		case <-ends:
			return samples
		case <-every.C:
		}
		begin := time.Now()
		_, err := cli.Get(ctx, "path", clientv3.WithSerializable())
		trip := time.Since(begin)
		if err == nil {
			begin = time.Now()
			_, err = cli.Delete(ctx, "path")
		}
		if err != nil {
			b.Error(err)
			return samples
		}
		samples = append(samples, pathTimes{trip, time.Since(begin)})
	}
}

// counters returns the metrics of a server, each the sum of its series.
func counters(t testing.TB, s *etcdtest.Server) map[string]float64 {
	t.Helper()
	reply, err := http.Get("http://" + s.Endpoint() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	sums := make(map[string]float64)
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		series, text, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(series, "{")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			sums[name] += value
		}
	}
	return sums
}
