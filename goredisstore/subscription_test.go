package goredisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/redis/go-redis/v9"
)

// A client whose subscription delivers nothing, although the server counts it, should poll. It
// should get its share of turns, and delay the others only a little.
func TestMuteSubscription(t *testing.T) {
	t.Parallel()
	const others, hold, span = 5, 10 * time.Millisecond, 3 * time.Second
	b := setUp(t)
	rate := func(clients ...*dibs.Client) (entries float64, last int64) {
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		each := make([]atomic.Int64, len(clients))
		var group sync.WaitGroup
		for i, c := range clients {
			group.Go(func() {
				for {
					l, err := c.Mutex(job).Lock(ctx)
					if err != nil {
						return
					}
					each[i].Add(1)
					time.Sleep(hold) // the work
					_ = l.Unlock()
				}
			})
		}
		group.Wait()
		for i := range each {
			last = each[i].Load()
			entries += float64(last)
		}
		return entries / span.Seconds(), last
	}
	clients := make([]*dibs.Client, others)
	for i := range clients {
		clients[i] = b.newClient(b.server.Addr())
	}

	proxy := b.proxy()
	done, degraded := make(chan struct{}), make(chan struct{})
	defer close(done)
	go func() { // mute each new subscription
		for {
			select {
			case <-proxy.MuteNextReply("subscribe"):
			case <-done:
				return
			}
		}
	}()
	once := sync.OnceFunc(func() { close(degraded) })
	mute := dibs.New(goredisstore.New(dial(t, &redis.Options{Addr: proxy.Addr()})), dibs.TTL(ttl),
		dibs.Observe(dibs.Hooks{Degraded: func(context.Context, dibs.Degraded) { once() }}))
	t.Cleanup(func() { mute.Close() })
	warm := b.lock(mute, "warm") // a client without leases does not check its subscription
	b.await("the client notices that its subscription is mute", degraded)
	b.unlock(warm)

	control, _ := rate(append(clients, b.newClient(b.server.Addr()))...)
	with, turns := rate(append(clients, mute)...)
	t.Logf("FIGURE one of %d clients has a mute subscription: %.0f entries/s, of which it has %d in all; without it: %.0f", others+1, with, turns, control)
	if with < control/3 {
		t.Errorf("%.0f entries/s, without the mute client %.0f", with, control)
	}
	if fair := with * span.Seconds() / (others + 1); float64(turns) < fair/2 {
		t.Errorf("%d turns of the mute client, want about %.0f", turns, fair)
	}
}
