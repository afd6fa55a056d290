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

// Over slow links requests take long, and are not repeated for that alone; and each
// process sends a script that the server does not know once, and not with each request.
func TestSlowLinks(t *testing.T) {
	t.Parallel()
	const rate = 20_000 // bytes a second of each connection, each way
	const processes, callers, rounds = 6, 4, 3
	script, err := os.ReadFile("testdata/unlock.lua")
	if err != nil {
		t.Fatal(err)
	}
	b := setUp(t)
	done := func(enter func(process int) bool) (took time.Duration) {
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
	took := done(func(i int) bool {
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
	whole := b.calls("eval")
	control := done(func(i int) bool {
		ok, err := plain[i].SetNX(t.Context(), "control", i, generous).Result()
		if err != nil || !ok {
			return false
		}
		return plain[i].Eval(t.Context(), string(script), []string{"control"}, i).Err() == nil
	})
	t.Logf("FIGURE %d entries over links of %d B/s took %v (control: %v); %d failures, %.1f scripts each, %d of them whole",
		entries.Load(), rate, round(took), round(control), failed.Load(), float64(b.scripts())/float64(entries.Load()), whole)
	if entries.Load() < processes*callers*rounds {
		t.Errorf("%d entries in %v, want %d", entries.Load(), round(took), processes*callers*rounds)
	}
	if most := int64(3 * processes); whole > most { // to lock, to unlock, and one that was not answered in time
		t.Errorf("%d scripts were sent whole, want %d at most", whole, most)
	}
	if each := float64(b.scripts()) / float64(entries.Load()); each > 6 { // 2, and what a busy machine makes them repeat
		t.Errorf("%.1f scripts for each entry", each)
	}
}

// calls is how often the server has done a command.
func (b *fixture) calls(command string) (n int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), generous)
	defer cancel()
	stats, err := b.direct.Call(ctx, "INFO", "commandstats")
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(fmt.Sprint(stats), "cmdstat_"+command+":calls=")
	_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n) // none yet: no line
	return n
}
