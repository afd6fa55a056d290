package drill

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// Frozen freezes the network for a while. A longer renewal should still be answered on its
// connection. A client with many callers should open few connections meanwhile.
func (o Opener) Frozen(t *testing.T) {
	Together(t, map[string]func(*testing.T){"patient renewal": o.patientRenewal, "many callers": o.frozenCallers})
}

func (o Opener) patientRenewal(t *testing.T) {
	const outage, ttl = 3 * time.Second, 30 * time.Second
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := o.Single(t, proxy.Addr())
	request := driver.AcquireRequest{Name: "n", Token: "token", Weight: 1, Limit: 1, TTL: ttl, Client: "client", Until: time.Now().Add(ttl)}
	if r, err := s.Acquire(Within(t, ttl), request); err != nil || !r.Held {
		t.Fatalf("acquired: %+v, %v", r, err)
	}
	before := proxy.Stats().Accepted
	proxy.Freeze()
	thaw := time.AfterFunc(outage, proxy.Thaw)
	defer thaw.Stop()
	begin := time.Now()
	errs := s.Extend(Within(t, 2*outage), []driver.ExtendRequest{{Name: "n", Token: "token", TTL: ttl}})
	if errs[0] != nil || time.Since(begin) < outage {
		t.Errorf("extended after %v: %v; want the reply after %v", time.Since(begin), errs[0], outage)
	}
	if n := proxy.Stats().Accepted - before; n > 1 { // for an abandoned direct attempt
		t.Errorf("%d connections opened, want at most one", n)
	}
}

func (o Opener) frozenCallers(t *testing.T) {
	const outage, callers, most = 3 * time.Second, 64, 12
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	client := dibs.New(o.Single(t, proxy.Addr()))
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i := range callers {
		m := client.Mutex(fmt.Sprint("name ", i))
		group.Go(func() {
			for ctx.Err() == nil {
				if l, err := m.Lock(ctx); err == nil {
					_ = l.Unlock()
				}
			}
		})
	}
	Eventually(t, "the callers lock", func() bool { return proxy.Stats().Requests > 1000 })
	before := proxy.Stats().Accepted
	proxy.Freeze()
	<-time.After(outage)
	n := proxy.Stats().Accepted - before
	proxy.Thaw()
	t.Logf("FIGURE %d connections before, %d opened in %v", before, n, outage)
	if n > most {
		t.Errorf("%d connections opened in an outage of %v, want at most %d", n, outage, most)
	}
}

// Silent lets all a client's connections end silently, while new connections work. Calls should
// soon succeed, although renewals still wait, and no lease should be lost.
func (o Opener) Silent(t *testing.T) {
	const ttl, leases, idle, recovery = 6 * time.Second, 20, 4, 3 * time.Second
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	client := dibs.New(o.Warm(t, proxy.Addr(), idle), dibs.TTL(ttl))
	defer client.Close()
	var held []*dibs.Lease
	for i := range leases {
		held = append(held, Lock(t, client, fmt.Sprint("held ", i)))
	}
	<-time.After(ttl / 3) // renewals are under way
	before := proxy.Stats().Accepted
	proxy.Silence()
	begin := time.Now()
	for n := 0; ; n++ {
		l, err := client.Mutex("other").Lock(t.Context())
		if err == nil {
			err = l.Unlock()
		}
		if err == nil {
			break
		}
		if time.Since(begin) > recovery {
			t.Fatalf("no lock within %v: %v", recovery, err)
		}
	}
	t.Logf("FIGURE the first lock came after %v; %d connections before, %d opened", time.Since(begin), before, proxy.Stats().Accepted-before)
	<-time.After(ttl)
	for i, l := range held {
		if err := l.Err(); err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	}
}
