package goredisstore_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/redis/go-redis/v9"
)

// Over a link slower than all callers' requests, some are answered, and goroutines enter. The
// bound is a fraction of a SET NX lock's throughput, where each caller waits a growing time
// between its tries and compares before it deletes. Its requests have half the size or less.
func TestNarrowLink(t *testing.T) {
	for _, names := range []int{50, 5, 1} {
		t.Run(fmt.Sprintf("%d names", names), func(t *testing.T) {
			t.Parallel()
			const rate, goroutines, part = 20_000, 50, 10
			b := setUp(t)
			loadScripts(t, b)
			entries := narrow(t, b, rate, goroutines, func(rdb *redis.Client) func(context.Context, int) bool {
				locks := dibs.New(goredisstore.New(rdb))
				t.Cleanup(func() { locks.Close() })
				return func(ctx context.Context, i int) bool {
					l, err := locks.Mutex("name:" + strconv.Itoa(i%names)).Lock(ctx)
					if err != nil {
						return false
					}
					_ = l.Unlock() // it goes on in the background
					return true
				}
			})
			plain := narrow(t, b, rate, goroutines, func(rdb *redis.Client) func(context.Context, int) bool {
				return func(ctx context.Context, i int) bool {
					return enterPlain(ctx, rdb, "plain:"+strconv.Itoa(i%names), strconv.Itoa(i))
				}
			})
			t.Logf("FIGURE %d entries over a link of %d B/s, %d with SET NX", entries, rate, plain)
			if part*entries < plain {
				t.Errorf("%d entries, want at least 1/%d of the %d with SET NX", entries, part, plain)
			}
		})
	}
}

// loadScripts makes a server know the scripts, as it does after its first locks.
func loadScripts(t *testing.T, b *fixture) {
	t.Helper()
	locks := dibs.New(goredisstore.New(dial(t, &redis.Options{Addr: b.server.Addr()})))
	defer locks.Close()
	held, err := locks.Mutex("loads").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Mutex("loads").Lock(t.Context(), dibs.Wait(50*time.Millisecond)); !errors.Is(err, dibs.ErrBusy) {
		t.Fatalf("got %v, want ErrBusy", err)
	}
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
}

//go:embed testdata/unlock.lua
var plainUnlock string

// enterPlain locks by SET NX, and unlocks by a script.
func enterPlain(ctx context.Context, rdb *redis.Client, key, token string) bool {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		ok, err := rdb.SetNX(ctx, key, token, 30*time.Second).Result()
		if ok && err == nil {
			break
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return false
		}
	}
	for ctx.Err() == nil && redis.NewScript(plainUnlock).Run(ctx, rdb, []string{key}, token).Err() != nil {
	}
	return ctx.Err() == nil
}

// narrow returns how often goroutines enter over a slow link within a time.
func narrow(t *testing.T, b *fixture, rate, goroutines int, open func(*redis.Client) func(context.Context, int) bool) int64 {
	const within = 15 * time.Second
	proxy := b.proxy()
	proxy.Narrow(rate)
	enter := open(dial(t, &redis.Options{Addr: proxy.Addr()}))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var entries atomic.Int64
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() {
			for ctx.Err() == nil {
				if enter(ctx, i) {
					entries.Add(1)
				}
			}
		})
	}
	group.Wait()
	return entries.Load()
}
