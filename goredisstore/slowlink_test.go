package goredisstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/redis/go-redis/v9"
)

// Over slow links, requests should not be retried only because they take long. Each process should
// send a missing script's text once, not with each request.
func TestSlowLinks(t *testing.T) {
	t.Parallel()
	const rate = 20_000 // bytes a second for each connection, each way
	const processes, callers, rounds = 6, 4, 3
	script, err := os.ReadFile("testdata/unlock.lua")
	if err != nil {
		t.Fatal(err)
	}
	b := setUp(t)
	run := func(enter func(process int) bool) (took time.Duration) {
		start := time.Now()
		var group sync.WaitGroup
		for i := range processes * callers {
			group.Go(func() {
				for n := 0; n < rounds && time.Since(start) < generous; {
					if enter(i % processes) {
						n++
					}
				}
			})
		}
		group.Wait()
		return time.Since(start)
	}
	var clients []*dibs.Client
	var plain []*redis.Client
	for range processes {
		proxy := b.proxy()
		proxy.Throttle(rate)
		rdb := dial(t, &redis.Options{Addr: proxy.Addr()})
		c := dibs.New(goredisstore.New(rdb), dibs.TTL(generous))
		t.Cleanup(func() { c.Close() })
		clients, plain = append(clients, c), append(plain, rdb)
	}
	var entries, failed atomic.Int64
	took := run(func(i int) bool {
		l, err := clients[i].Mutex(job).Lock(deadline(t, generous))
		if err != nil {
			failed.Add(1)
			return false
		}
		entries.Add(1)
		if err := l.Unlock(); err != nil {
			failed.Add(1)
		}
		return true
	})
	full := b.calls("eval")
	control := run(func(i int) bool {
		ok, err := plain[i].SetNX(t.Context(), "control", i, generous).Result()
		if err != nil || !ok {
			return false
		}
		return plain[i].Eval(t.Context(), string(script), []string{"control"}, i).Err() == nil
	})
	t.Logf("FIGURE %d entries over links of %d B/s took %v (control: %v); %d failures, %.1f scripts per entry, %d sent with their text",
		entries.Load(), rate, round(took), round(control), failed.Load(), float64(b.scripts())/float64(entries.Load()), full)
	if entries.Load() < processes*callers*rounds {
		t.Errorf("%d entries in %v, want %d", entries.Load(), round(took), processes*callers*rounds)
	}
	if most := int64(3 * processes); full > most { // for lock, for unlock, and one that timed out
		t.Errorf("%d scripts were sent with their text, want at most %d", full, most)
	}
	if each := float64(b.scripts()) / float64(entries.Load()); each > 6 { // 2, and retries on a busy machine
		t.Errorf("%.1f scripts per entry, want at most 6", each)
	}
}

// calls returns how often the server executed a command.
func (b *fixture) calls(command string) (n int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), generous)
	defer cancel()
	stats, err := b.direct.Call(ctx, "INFO", "commandstats")
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(fmt.Sprint(stats), "cmdstat_"+command+":calls=")
	_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n) // there is no line before the first call
	return n
}
