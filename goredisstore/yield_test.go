package goredisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/carried"
)

// Several processes' jobs yield between their chunks. No two chunks run at the same time, fences
// grow from chunk to chunk, and nothing is left behind. One client's connections break again and
// again.
func TestYieldingJobs(t *testing.T) {
	t.Parallel()
	const jobs, chunks, clients = 4, 25, 3
	b := setUp(t)
	proxy := b.proxy()
	addrs := [clients]string{b.server.Addr(), b.server.Addr(), proxy.Addr()}
	broken, stop := context.WithCancel(t.Context())
	defer stop()
	var breaking sync.WaitGroup
	breaking.Go(func() {
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for ; ; proxy.Reset() {
			select {
			case <-every.C:
			case <-broken.Done():
				return
			}
		}
	})

	var (
		working sync.Mutex // held during a chunk
		last    uint64     // the last chunk's fence
		leases  int
		group   sync.WaitGroup
	)
	for i := range clients {
		c := b.newClient(addrs[i], dibs.Timeout(5*time.Second))
		for range jobs {
			group.Go(func() {
				err := c.Mutex(job).Do(t.Context(), func(ctx context.Context) error {
					for range chunks {
						if !working.TryLock() {
							t.Error("two chunks at the same time")
							working.Lock()
						}
						fence := carried.Fence(ctx)
						if fence < last {
							t.Errorf("fence %d after %d", fence, last)
						}
						if fence != last {
							leases++
						}
						last = fence
						working.Unlock()
						if err := carried.Yield(ctx, job); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	stop()
	breaking.Wait()
	if leases <= jobs*clients {
		t.Errorf("%d leases, want more than one for each of %d jobs", leases, jobs*clients)
	}
	t.Logf("%d chunks in %d leases", jobs*chunks*clients, leases)
	b.eventually("no key is left", func() bool { return len(b.remainingKeys()) == 0 })
}

// The holder's subscription is down while a request queues. The holder asks again when it is
// back.
func TestWantedAfterReconnection(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	holder, other := b.newClient(proxy.Addr(), dibs.TTL(10*time.Minute)), b.newClient(b.server.Addr())
	l := b.lock(holder, job)
	b.awaitSubscription(string(l.Token()))
	l.Wanted()
	b.eventually("the store has the question", func() bool { return b.call("HEXISTS", "{lock:"+job+"}:dibs:meta", "!") == int64(1) })
	proxy.Refuse(true)
	proxy.Reset()
	b.eventually("nobody listens", func() bool {
		counts, _ := b.call("PUBSUB", "NUMSUB", channelOf(string(l.Token()))).([]any)
		return len(counts) == 2 && counts[1] == int64(0)
	})
	entered := b.enqueue(other, nil)
	select {
	case <-l.Wanted():
		t.Fatal("wanted, but the network is down")
	default:
	}
	proxy.Refuse(false)
	b.await("the holder learns of the waiter", l.Wanted())
	b.unlock(l)
	b.awaitEntry(entered)
}
