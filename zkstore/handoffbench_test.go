package zkstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/go-zookeeper/zk"
)

// BenchmarkHandoff measures hand-offs: from the call of unlock until the next waiter's lock returns.
// An operation is an acquisition. A holder keeps the name for 2 ms, and locks it again at once. The
// waiters use four clients.
//
// With a delay, each request and reply takes 1 ms longer, and a holder keeps the name for 10 ms. Then
// rtt is a hand-off in round trips, without the commit of the delete. A round trip and a commit are
// measured in the same run.
func BenchmarkHandoff(b *testing.B) {
	eachServer(b, func(b *testing.B, s *zktest.Server) { handoffs(b, s, s.Endpoint(), 2*time.Millisecond) })
	b.Run("delayed", func(b *testing.B) {
		s := zktest.NewServer(b, longestSession, "-Xmx256m")
		p := redistest.NewProxy(b, s.Endpoint())
		p.Delay(time.Millisecond)
		handoffs(b, s, p.Addr(), 10*time.Millisecond)
	})
}

func handoffs(b *testing.B, s *zktest.Server, endpoint string, hold time.Duration) {
	for _, waiters := range []int{2, 16, 128} {
		for _, c := range contestants[1:] {
			b.Run(fmt.Sprintf("waiters=%d/%s", waiters, c.name), func(b *testing.B) { handoff(b, s, endpoint, hold, c, waiters) })
		}
	}
}

func handoff(b *testing.B, s *zktest.Server, endpoint string, hold time.Duration, c contestant, waiters int) {
	prefix := newPrefix()
	var locks []locker
	for range min(waiters, 4) {
		l := c.open(b, endpoint, prefix)
		locks = append(locks, l)
		pairs(b, l, 1, 10*time.Millisecond) // connections, sessions, and the znode of name-0
	}
	conn := dial(b, endpoint)
	if err := createAll(conn, "/path"); err != nil {
		b.Fatal(err)
	}
	const idle = time.Second
	before := counters(b, s)
	time.Sleep(idle)
	proofs := counters(b, s).since(before) // of the sessions
	l := &line{left: b.N, hold: hold, name: "name-0"}
	before = counters(b, s)
	begin := time.Now()
	var group sync.WaitGroup
	for w := range waiters {
		group.Go(func() { l.wait(b, locks[w%len(locks)]) })
	}
	ends := make(chan struct{})
	var trips []pathTimes
	var sampler sync.WaitGroup
	sampler.Go(func() { trips = samplePath(b, conn, ends) })
	group.Wait()
	close(ends)
	sampler.Wait()
	all := counters(b, s).since(before)
	n := float64(len(l.took) + 1)
	length := float64(time.Since(begin)) / float64(idle)
	samples := float64(len(trips))
	b.ReportMetric((all.writes-samples-proofs.writes*length)/n, "writes/acq")
	b.ReportMetric((all.received-2*samples-proofs.received*length)/n, "requests/acq")
	taken := l.took[min(waiters, len(l.took)-1):] // without the start
	b.ReportMetric(float64(median(taken).Microseconds()), "p50-µs")
	b.ReportMetric(float64(quantile(taken, .99).Microseconds()), "p99-µs")
	var trip, commit []time.Duration
	for _, t := range trips {
		trip, commit = append(trip, t.trip), append(commit, t.write-t.trip)
	}
	if len(trips) > 0 {
		b.ReportMetric(float64(median(taken)-median(commit))/float64(median(trip)), "rtt")
		b.ReportMetric(float64(median(trip).Microseconds()), "trip-µs")
		b.ReportMetric(float64(median(commit).Microseconds()), "commit-µs")
	}
	b.ReportMetric(0, "ns/op")
}

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

// pathTimes are the times of a request that ZooKeeper answers at once, and of one that it commits.
type pathTimes struct{ trip, write time.Duration }

// samplePath measures requests until the benchmark ends.
func samplePath(b *testing.B, conn *zk.Conn, ends <-chan struct{}) (samples []pathTimes) {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ends:
			return samples
		case <-every.C:
		}
		begin := time.Now()
		_, _, err := conn.Exists("/path")
		trip := time.Since(begin)
		if err == nil {
			begin = time.Now()
			_, err = conn.Set("/path", nil, -1)
		}
		if err != nil {
			b.Error(err)
			return samples
		}
		samples = append(samples, pathTimes{trip, time.Since(begin)})
	}
}

// serverCounters are what a server counts: its writes, and the packets that it received.
type serverCounters struct{ writes, received float64 }

func (c serverCounters) since(before serverCounters) serverCounters {
	return serverCounters{c.writes - before.writes, c.received - before.received}
}

func counters(t testing.TB, s *zktest.Server) (c serverCounters) {
	t.Helper()
	text, err := s.Command("srvr")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		key, number, _ := strings.Cut(strings.TrimSpace(line), ": ")
		value, _ := strconv.ParseUint(number, 0, 64)
		switch key {
		case "Zxid":
			c.writes = float64(value)
		case "Received":
			c.received = float64(value)
		}
	}
	return c
}
