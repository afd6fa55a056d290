package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// setForeignKeys sets other programs' keys.
func setForeignKeys(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	const batch = 1000
	for first := 0; first < n; first += batch {
		cmd := []string{"MSET"}
		for i := first; i < min(n, first+batch); i++ {
			cmd = append(cmd, fmt.Sprintf("session:%032x", uint64(i)*0x9E3779B97F4A7C15), "x")
		}
		server.MustCmd(t, cmd...)
	}
}

// List should read other programs' keys in short steps, and the server should not send them.
func TestListBesideForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const foreign, step = 20_000, 1000
	setForeignKeys(t, server, foreign)
	p := newClient(t, open(t, server))
	for i := range 10 {
		p.mustAcquire(p.request(fmt.Sprintf("n%d", i)))
	}
	before, scans := outputOf(t, server), commandCalls(t, server, "scan")
	names, err := p.s.List(t.Context(), "*")
	if err != nil || len(names) != 10 {
		t.Errorf("%d names, %v: want 10", len(names), err)
	}
	if n := commandCalls(t, server, "scan") - scans; n < foreign/step {
		t.Errorf("%d steps for %d keys: want one for each %d", n, foreign, step)
	}
	const each = 200 // bytes in an empty reply, at most
	if sent := outputOf(t, server) - before; sent > 4*foreign/step*each {
		t.Errorf("the server sent %d bytes", sent)
	}
}

// BenchmarkList lists 100 locks beside a million keys from other programs. It reports the server's
// time and the number of steps for each List, and the median and the longest step.
func BenchmarkList(b *testing.B) {
	server := redistest.Start(b)
	setForeignKeys(b, server, 1_000_000)
	s := open(b, server)
	conn := redistest.Dial(server.Addr())
	b.Cleanup(conn.Close)
	for i := range 100 {
		server.MustCmd(b, "SET", fmt.Sprintf("lock:n%d", i), "web-7:211:q3ZkAbCdEfGhIjKl:m-abcdefgh", "PX", "3600000")
	}
	server.MustCmd(b, "CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000")
	server.MustCmd(b, "CONFIG", "RESETSTAT")
	server.MustCmd(b, "SLOWLOG", "RESET")
	b.ResetTimer()
	for range b.N {
		if names, err := s.List(context.Background(), "*"); err != nil || len(names) != 100 {
			b.Fatal(len(names), err)
		}
	}
	b.StopTimer()
	text, _ := server.MustCmd(b, "INFO", "commandstats").(string)
	m := regexp.MustCompile(`cmdstat_scan:calls=(\d+),usec=(\d+)`).FindStringSubmatch(text)
	steps, _ := strconv.Atoi(m[1])
	micros, _ := strconv.Atoi(m[2])
	longest := logged(b, server, "SCAN")
	b.ReportMetric(float64(micros)/1000/float64(b.N), "server-ms/op")
	b.ReportMetric(float64(steps)/float64(b.N), "steps/op")
	b.ReportMetric(milliseconds(longest[len(longest)/2]), "median-step-ms")
	b.ReportMetric(milliseconds(longest[len(longest)-1]), "max-step-ms")
}

// A Client should list other libraries' locks with their owners, whatever their type, and no data
// with other types. More names than a single step inspects should come in order.
func TestClientListsForeignLocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := dibs.New(open(t, server, redisstore.Prefix("")))
	defer locks.Close()
	const own = 600
	for i := range own {
		server.MustCmd(t, "SET", fmt.Sprintf("own:%03d", i), fmt.Sprintf("web-7:211:q3ZkAbCdEfGhIjKl:m-%08d", i), "PX", "3600000")
	}
	write(t, server, rlock)
	write(t, server, "SADD data a | RPUSH list a | ZADD scores 1 a | HSET hash f v | SET uuid "+someUUID+" PX 60000")
	foreign := make(map[string]string)
	last, count := "", 0
	for state, err := range locks.List(t.Context(), "*") {
		if err != nil {
			t.Fatal(err)
		}
		if state.Name <= last || len(state.Holders) != 1 {
			t.Errorf("after %q: %+v", last, state)
		}
		if last = state.Name; state.Foreign != nil {
			foreign[state.Name] = state.Foreign.Kind
		} else if count++; state.Holders[0].Kind != dibs.KindMutex {
			t.Errorf("%+v, want a mutex", state)
		}
	}
	want := map[string]string{"n": "Redisson RLock", "uuid": "lock (string)"}
	if count != own || !maps.Equal(foreign, want) {
		t.Errorf("%d own locks, foreign ones %v: want %d, %v", count, foreign, own, want)
	}
}
