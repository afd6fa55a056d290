package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// BenchmarkInspectAll inspects 10,000 held names. Half of the leases were extended, and 1,000
// requests wait for 200 of the names. Beside the time of the client it reports for one
// InspectAll: the time of all scripts and the CPU time of the server, and the time for each
// name. Then the longest call, if one took 0.2 ms, and the longest round trip of another client.
func BenchmarkInspectAll(b *testing.B) {
	server := redistest.Start(b)
	b.Run("one server", func(b *testing.B) { benchmarkInspectAll(b, open(b, server), server) })
	node := redistest.StartClusterNode(b)
	b.Run("cluster", func(b *testing.B) { benchmarkInspectAll(b, open(b, node, redisstore.Sharded()), node) })
}

func benchmarkInspectAll(b *testing.B, s *redisstore.Store, server *redistest.Server) {
	names := fillForBenchmark(b, s)
	inspect := func() {
		states, err := s.InspectAll(context.Background(), names)
		if err != nil || len(states) != len(names) || len(states[0].Holders) != 1 {
			b.Fatalf("%d states, %v", len(states), err)
		}
	}
	inspect() // loads the script
	// To log the commands in the scripts, too, would cost more than the commands.
	const slow = 200 // µs
	server.MustCmd(b, "CONFIG", "SET", "slowlog-log-slower-than", strconv.Itoa(slow), "slowlog-max-len", "100000")
	server.MustCmd(b, "SLOWLOG", "RESET")
	longestTrip := watchRoundTrips(b, server)
	server.MustCmd(b, "CONFIG", "RESETSTAT")
	cpu := cpuTime(b, server)
	b.ResetTimer()
	for range b.N {
		inspect()
	}
	b.StopTimer()
	longest := longestTrip()
	calls, total := scriptTime(b, server)
	b.ReportMetric(milliseconds(total)/float64(b.N), "server-ms/op")
	b.ReportMetric(milliseconds(cpuTime(b, server)-cpu)/float64(b.N), "server-cpu-ms/op")
	b.ReportMetric(milliseconds(total)*1000/float64(b.N*len(names)), "server-µs/name")
	b.ReportMetric(float64(calls)/float64(b.N), "calls/op")
	if took := logged(b, server, "EVALSHA"); len(took) > 0 {
		b.ReportMetric(milliseconds(took[len(took)-1]), "max-call-ms")
	}
	b.ReportMetric(milliseconds(longest), "max-other-ms")
}

// fillForBenchmark holds the names, and waits for some of them. It returns them in another
// order, as List does.
func fillForBenchmark(b *testing.B, s *redisstore.Store) (names []string) {
	const held, mixed, waitersEach = 10_000, 200, 5
	const client = "web-7:211:q3ZkAbCdEfGhIjKl"
	request := func(i int) driver.AcquireRequest {
		return driver.AcquireRequest{
			Name: fmt.Sprintf("order:%d", i%held), Token: fmt.Sprintf("%s:m-%08d:nightly", client, i), Client: client, Seq: uint64(i),
			TTL: time.Hour, Weight: 1, Limit: 1, Queue: true, Until: time.Now().Add(generous),
		}
	}
	var pending sync.WaitGroup
	acquire := func(i int) driver.AcquireReply {
		reply, err := s.Acquire(context.Background(), request(i))
		if err != nil {
			b.Error(err)
		}
		return reply
	}
	extends := make([]driver.ExtendRequest, 0, held/2)
	var mu sync.Mutex
	for i := range held {
		names = append(names, request(i).Name)
		if i%100 == 0 {
			pending.Wait()
		}
		pending.Go(func() {
			reply := acquire(i)
			if c := request(i); i%2 == 0 {
				mu.Lock()
				extends = append(extends, driver.ExtendRequest{Name: c.Name, Token: c.Token, Client: client, Fence: reply.Fence, TTL: c.TTL, Weight: 1, Limit: 1})
				mu.Unlock()
			}
		})
	}
	pending.Wait()
	for some := range slices.Chunk(extends, 100) {
		for i, err := range s.Extend(context.Background(), some) {
			if err != nil {
				b.Fatal(some[i], err)
			}
		}
	}
	for i := range waitersEach {
		for n := range mixed {
			if reply := acquire(held*(i+1) + n*held/mixed); reply.Ticket == 0 {
				b.Fatalf("%+v, want a waiter", reply)
			}
		}
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// watchRoundTrips measures a PING of another client each ms, until the function that it returns
// is called. That returns the longest round trip.
func watchRoundTrips(b *testing.B, server *redistest.Server) (longest func() time.Duration) {
	conn := redistest.Dial(server.Addr())
	b.Cleanup(conn.Close)
	ctx, cancel := context.WithCancel(context.Background())
	found := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			begin := time.Now()
			if _, err := conn.Call(context.Background(), "PING"); err != nil {
				break
			}
			most = max(most, time.Since(begin))
		}
		found <- most
	}()
	return func() time.Duration { cancel(); return <-found }
}

var scriptCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// scriptTime returns how many scripts a server has run, and for how long.
func scriptTime(b *testing.B, server *redistest.Server) (calls int, total time.Duration) {
	text, _ := server.MustCmd(b, "INFO", "commandstats").(string)
	m := scriptCalls.FindStringSubmatch(text)
	if m == nil {
		b.Fatalf("no scripts in %s", text)
	}
	calls, _ = strconv.Atoi(m[1])
	micros, _ := strconv.Atoi(m[2])
	return calls, time.Duration(micros) * time.Microsecond
}

var cpuTimes = regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`)

// cpuTime returns the CPU time that a server has used.
func cpuTime(b *testing.B, server *redistest.Server) (total time.Duration) {
	text, _ := server.MustCmd(b, "INFO", "cpu").(string)
	for _, m := range cpuTimes.FindAllStringSubmatch(text, -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total
}

// logged returns how long the commands of this name in the slow log took, in that order.
func logged(b *testing.B, server *redistest.Server, command string) (took []time.Duration) {
	entries, _ := server.MustCmd(b, "SLOWLOG", "GET", "-1").([]any)
	for _, e := range entries {
		fields, _ := e.([]any)
		words, _ := fields[3].([]any)
		micros, _ := fields[2].(int64)
		if len(words) > 0 && words[0] == command {
			took = append(took, time.Duration(micros)*time.Microsecond)
		}
	}
	slices.Sort(took)
	return took
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
