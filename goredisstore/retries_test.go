package goredisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// go-redis' MaxRetries must make no difference while connections break all the time. Two clients
// run at once, one with 10 retries.
func TestResetsDespiteRetries(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	end := time.Now().Add(3 * time.Second)
	var pairs [2]atomic.Int64
	var workers sync.WaitGroup
	for i, retries := range []int{-1, 10} {
		locks := openClient(t, dial(t, &redis.Options{Addr: proxy.Addr(), MaxRetries: retries}))
		for n := range 8 {
			workers.Go(func() {
				for time.Now().Before(end) {
					l, err := locks.Mutex(fmt.Sprint(retries, n%2)).Lock(drill.Within(t, drill.Generous))
					if err == nil && l.Unlock() == nil {
						pairs[i].Add(1)
					}
				}
			})
		}
	}
	for time.Now().Before(end) {
		time.Sleep(5 * time.Millisecond)
		proxy.Reset()
	}
	workers.Wait()
	without, with := pairs[0].Load(), pairs[1].Load()
	t.Logf("FIGURE between resets every 5 ms: %d entries without retries, %d with ten", without, with)
	if with < without/3 {
		t.Errorf("%d entries without retries of go-redis, %d with ten", without, with)
	}
}
