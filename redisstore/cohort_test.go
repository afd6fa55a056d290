package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// Clients with and without cohorts exclude each other in each mode, and fences grow.
func TestCohortsExclude(t *testing.T) {
	t.Parallel()
	for mode, options := range map[string][]redisstore.Option{
		"one server": nil, "cluster": {redisstore.HiddenCluster()}, "Redisson mode": {redisstore.Redisson()},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			start := redistest.Start
			if mode == "cluster" {
				start = redistest.StartClusterNode
			}
			server := start(t)
			var section history.Section
			var workers sync.WaitGroup
			for i := range 4 {
				c := dibs.New(open(t, server, options...))
				defer c.Close()
				do := c.Mutex("n").Do
				if i > 0 {
					do = cohort.New(c.Mutex("n"), cohort.Passes(4*i), cohort.IdleHold(time.Duration(i%2)*time.Millisecond)).Do
				}
				for range 4 {
					workers.Go(func() {
						for range 100 {
							err := do(t.Context(), func(ctx context.Context) error {
								section.Visit(t, carried.Fence(ctx))
								return nil
							})
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			workers.Wait()
		})
	}
}

// A hand-off says how many fences belong to it: those after the last holder's.
func TestFencesOfAHandoff(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server))
	events := make(chan driver.Event, 9)
	q := open(t, server)
	connected := make(chan struct{}, 1)
	go func() {
		_ = q.Watch(t.Context(), "w:1:x", nil, func(e driver.Event) {
			if e.Kind == driver.EventConnected {
				connected <- struct{}{}
				return
			}
			events <- e
		})
	}()
	<-connected
	for _, known := range []bool{true, false} {
		holder := p.request("n")
		reply, err := p.s.Acquire(t.Context(), holder)
		if err != nil || !reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
		waiter := driver.AcquireRequest{Name: "n", Token: fmt.Sprint("w:1:x:", known), Client: "w:1:x", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
		if reply, err := q.Acquire(t.Context(), waiter); err != nil || reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
		release := driver.ReleaseRequest{Name: "n", Token: holder.Token}
		if known {
			release.Fence = reply.Fence
		}
		if released, err := p.s.Release(t.Context(), release); err != nil || !released {
			t.Fatal(released, err)
		}
		e := <-events
		want := uint64(1)
		if known {
			want = min(e.Fence-reply.Fence, 1000)
		}
		// The server serves every 32nd hand-off in another way, without fences.
		if e.Kind != driver.EventGranted || e.Fences != want && e.Fences != 0 {
			t.Errorf("%+v after fence %d, want %d fences", e, reply.Fence, want)
		}
		if _, err := q.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: waiter.Token, Fence: e.Fence}); err != nil {
			t.Fatal(err)
		}
	}
}

// A lingering lease is released at once when another process waits: the waiter enters two round
// trips after its request. The delay is long compared to a busy machine's extra time.
func TestLingeringLeaseIsReleasedAtOnce(t *testing.T) {
	t.Parallel()
	const oneWay = 80 * time.Millisecond
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Delay(oneWay)
	through := func() *dibs.Client {
		conn := redistest.Dial(proxy.Addr())
		t.Cleanup(conn.Close)
		return dibs.New(redisstore.New(conn), dibs.Timeout(generous))
	}
	hot := func(c *dibs.Client, name string) *cohort.Cohort {
		return cohort.New(c.Mutex(name), cohort.Passes(8), cohort.IdleHold(10*time.Second))
	}
	a, b := through(), through()
	defer a.Close()
	defer b.Close()
	machine := drill.WatchMachine(t.Context(), server.Addr())
	var waits []time.Duration // without the machine's extra time
	for i := range 7 {
		name := fmt.Sprint("n", i)
		l, err := hot(a, name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * oneWay) // until the store has recorded the client's request for notification
		machine.Begin()
		begin := time.Now()
		l, err = hot(b, name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, time.Since(begin)-machine.Late())
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(waits)
	t.Logf("waits %v, one way %v", waits, oneWay)
	if median := waits[len(waits)/2]; median > 5*oneWay { // four, and a busy machine's extra time
		t.Errorf("half of the waiters waited for %v or longer, want two round trips of %v", median, 2*oneWay)
	}
}
