package drill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// Proxies runs a scenario behind each proxy that routes by hash tags, in front of two servers.
// DIBS_PROXY can add the address of a running proxy, such as Codis.
func Proxies(t *testing.T, run func(t *testing.T, addr string)) {
	if addr := redistest.RunningProxy(); addr != "" {
		run(t, addr)
		return
	}
	for name, start := range map[string]func(*testing.T, ...*redistest.Server) string{
		"router": func(t *testing.T, servers ...*redistest.Server) string {
			return redistest.NewRouter(t, redistest.ByTag, servers...).Addr()
		},
		"twemproxy": func(t *testing.T, servers ...*redistest.Server) string {
			return redistest.StartTwemproxy(t, "{}", servers...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, start(t, redistest.Start(t), redistest.Start(t)))
		})
	}
}

// Proxy checks whether locks behind a proxy exclude each other only by name. With DIBS_LONG it can
// run for ten minutes.
func (o Opener) Proxy(t *testing.T) {
	Proxies(t, func(t *testing.T, addr string) {
		const clients, workers, entries = 3, 8, 1500
		w := &proxyWorkload{holds: make(map[string]*holds)}
		more := func() bool { return w.entries.Add(1) <= entries }
		if redistest.Long() {
			end := time.Now().Add(10 * time.Minute)
			more = func() bool { w.entries.Add(1); return time.Now().Before(end) }
		}
		var running sync.WaitGroup
		for range clients {
			locks := dibs.New(o.Proxied(t, addr), dibs.TTL(10*time.Second), dibs.Timeout(10*time.Second))
			t.Cleanup(func() { locks.Close() })
			for range workers {
				running.Go(func() {
					for more() {
						if err := w.enter(t.Context(), locks); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		running.Wait()
		t.Logf("%d entries, %d of them doubled", w.entries.Load(), w.doubled.Load())
		if w.doubled.Load() > 0 {
			t.Errorf("%d holds beside another one", w.doubled.Load())
		}
	})
}

// A proxyWorkload counts each name's holders.
type proxyWorkload struct {
	entries, doubled atomic.Int64

	mu    sync.Mutex
	holds map[string]*holds // by name
}

// holds is the total held on a name.
type holds struct {
	weight int
	fence  uint64 // the largest exclusive holder's fence
}

// enter holds any kind of lock for a moment.
func (w *proxyWorkload) enter(ctx context.Context, locks *dibs.Client) error {
	const names, permits, writer = 12, 3, 1 << 20
	at := rand.IntN(names)
	doer, held, weight, limit := dibs.Doer(locks.Mutex(fmt.Sprintf("mutex-%d", at))), []string{fmt.Sprintf("mutex-%d", at)}, 1, 1
	switch name := fmt.Sprintf("rw-%d", at); rand.IntN(5) {
	case 0:
		doer, held, weight, limit = locks.RWMutex(name).Reading(), []string{name}, 1, writer
	case 1:
		doer, held, weight, limit = locks.RWMutex(name), []string{name}, writer, writer
	case 2:
		name = fmt.Sprintf("sem-%d", at)
		doer, held, weight, limit = locks.Semaphore(name, permits), []string{name}, 1, permits
	case 3:
		held = []string{fmt.Sprintf("{all-%d}a", at), fmt.Sprintf("{all-%d}b", at)}
		doer = locks.All(held...)
		if rand.IntN(2) == 0 {
			doer, held = locks.Mutex(held[1]), held[1:]
		}
	}
	return doer.Do(ctx, func(ctx context.Context) error {
		w.add(held, weight, limit)
		if weight == limit && len(held) == 1 {
			w.checkFence(held[0], dibs.Fence(ctx))
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		w.add(held, -weight, limit)
		return ctx.Err()
	})
}

// checkFence counts an exclusive holder as doubled if its fence is not the largest.
func (w *proxyWorkload) checkFence(name string, fence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if fence <= w.holds[name].fence {
		w.doubled.Add(1)
	}
	w.holds[name].fence = fence
}

func (w *proxyWorkload) add(names []string, weight, limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		h := w.holds[name]
		if h == nil {
			h = new(holds)
			w.holds[name] = h
		}
		if h.weight += weight; h.weight > limit {
			w.doubled.Add(1)
		}
	}
}
