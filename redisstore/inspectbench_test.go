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
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// BenchmarkInspectAll inspects 10,000 held names. Half of the leases were extended, and 1,000
// requests wait for 200 names. Beside the client's time it reports the server's CPU time for an
// InspectAll, in total and for each name. It divides this into the time for scripts, and the time
// for other commands, in scripts or not. Then it reports the longest command, if it took 0.2 ms,
// and another client's longest round trip. "poll" is a dashboard's poll, which lists the names
// first. "by script" is the baseline: it inspects the same keys, but a store without a prefix uses
// no plain commands.
func BenchmarkInspectAll(b *testing.B) {
	const prefix = "lock:"
	server := redistest.Start(b)
	s, bare := open(b, server, redisstore.Prefix(prefix)), open(b, server, redisstore.Prefix(""))
	names := fillForBenchmark(b, s)
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = prefix + name
	}
	b.Run("one server", func(b *testing.B) { benchmarkInspectAll(b, server, len(names), inspecting(b, s, names)) })
	b.Run("by script", func(b *testing.B) { benchmarkInspectAll(b, server, len(names), inspecting(b, bare, keys)) })
	b.Run("poll", func(b *testing.B) {
		benchmarkInspectAll(b, server, len(names), func() {
			listed, err := s.List(context.Background(), "*")
			if err != nil {
				b.Fatal(err)
			}
			states, err := s.InspectAll(context.Background(), listed)
			if err != nil || len(states) != len(names) {
				b.Fatalf("%d states, %v", len(states), err)
			}
		})
	})
	node := redistest.StartClusterNode(b)
	sharded := open(b, node, redisstore.HiddenCluster())
	fillForBenchmark(b, sharded)
	b.Run("cluster", func(b *testing.B) { benchmarkInspectAll(b, node, len(names), inspecting(b, sharded, names)) })
}

// inspecting returns a function for inspecting names.
func inspecting(b *testing.B, s *redisstore.Store, names []string) func() {
	return func() {
		states, err := s.InspectAll(context.Background(), names)
		if err != nil || len(states) != len(names) || len(states[0].Holders) != 1 {
			b.Fatalf("%d states, %v", len(states), err)
		}
	}
}

func benchmarkInspectAll(b *testing.B, server *redistest.Server, names int, inspect func()) {
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
	used := milliseconds(cpuTime(b, server)-cpu) / float64(b.N)
	b.ReportMetric(used, "server-cpu-ms/op")
	b.ReportMetric(used*1000/float64(names), "server-cpu-µs/name")
	b.ReportMetric(milliseconds(commandTime(b, server, "evalsha"))/float64(b.N), "scripts-ms/op")
	b.ReportMetric(milliseconds(commandTime(b, server, "scan", "exists", "get", "hget", "pttl"))/float64(b.N), "commands-ms/op")
	var slowest time.Duration
	for _, command := range []string{"EVALSHA", "SCAN"} {
		if took := logged(b, server, command); len(took) > 0 {
			slowest = max(slowest, took[len(took)-1])
		}
	}
	b.ReportMetric(milliseconds(slowest), "max-call-ms")
	b.ReportMetric(milliseconds(longest), "max-other-ms")
}

// fillForBenchmark holds the names, and waits for some. It returns them in another order, as List
// does.
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
			if r := request(i); i%2 == 0 {
				mu.Lock()
				extends = append(extends, driver.ExtendRequest{Name: r.Name, Token: r.Token, Client: client, Fence: reply.Fence, TTL: r.TTL, Weight: 1, Limit: 1})
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

// watchRoundTrips measures another client's PING each ms, until the returned function is called.
// This function returns the longest round trip.
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

var commandTimes = regexp.MustCompile(`cmdstat_([^:]+):calls=\d+,usec=(\d+)`)

// commandTime returns for how long a server executed some commands.
func commandTime(b *testing.B, server *redistest.Server, commands ...string) (total time.Duration) {
	text, _ := server.MustCmd(b, "INFO", "commandstats").(string)
	for _, m := range commandTimes.FindAllStringSubmatch(text, -1) {
		if slices.Contains(commands, m[1]) {
			micros, _ := strconv.Atoi(m[2])
			total += time.Duration(micros) * time.Microsecond
		}
	}
	return total
}

var cpuTimes = regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`)

// cpuTime returns a server's CPU time.
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

// logged returns how long the commands with this name in the slow log took, in that order.
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
