package etcdstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Replies are lost after etcd did the requests, requests are lost or arrive late, and connections
// end or stall.
func TestRepliesAreLost(t *testing.T) {
	t.Parallel()
	lasts := 12 * time.Second
	if isLong() {
		lasts = 2 * time.Minute
	}
	server := sharedServer(t)
	d := newDrill(t, newClient(t, server))
	var proxies []*redistest.Proxy
	for range 3 {
		proxy := redistest.NewProxy(t, server.Endpoint())
		proxies = append(proxies, proxy)
		locks := d.open(newClientWith(t, clientv3.Config{Endpoints: []string{proxy.Addr()}}))
		for range 3 {
			d.enter(locks)
		}
	}
	faults := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); faults++ {
		d.disturb(proxies[rand.IntN(len(proxies))])
	}
	healed := d.rec.Now()
	for _, proxy := range proxies {
		proxy.Heal()
	}
	t.Logf("FIGURE %d faults, an entry %v afterwards", faults, d.wantEntry(healed, longestIdle))
	d.stop()
}

// disturb injects a fault for a while.
func (d *drill) disturb(p *redistest.Proxy) {
	const most = 800 * time.Millisecond
	release := func() {}
	switch rand.IntN(6) {
	case 0:
		p.CutNextReply(d.prefix)
	case 1:
		p.MuteNextReply(d.prefix)
	case 2:
		p.LoseNextRequest(d.prefix)
	case 3:
		_, release = p.HoldNextRequest(d.prefix)
	case 4:
		p.Freeze()
	case 5:
		p.Reset()
	}
	d.sleep(rand.N(most))
	p.Reset() // a client does not notice a silent connection by itself
	release()
	p.Heal()
	d.sleep(rand.N(most / 4))
}

// An acquire that was cancelled should do nothing when it arrives late.
func TestLateAcquire(t *testing.T) {
	t.Parallel()
	t.Run("cancelled", func(t *testing.T) {
		late := holdAcquire(t)
		eventually(t, longSession, func() error { // a request can use the silent connection, without a reply
			request := late.request
			request.Until = time.Now().Add(driver.OperationTimeout)
			return late.store.Cancel(t.Context(), request)
		})
		late.release()
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			if wantHolder(t.Context(), late.direct, late.request.Token) == nil {
				t.Fatal("a late acquire took effect after its cancel")
			}
		}
	})
	t.Run("not cancelled", func(t *testing.T) { // the requests are late indeed
		late := holdAcquire(t)
		late.release()
		eventually(t, drillTTL, func() error { return wantHolder(t.Context(), late.direct, late.request.Token) })
	})
}

// A lateAcquire is on its way until release, but its sender gave up.
type lateAcquire struct {
	store, direct *etcdstore.Store
	request       driver.AcquireRequest
	release       func()
}

func holdAcquire(t *testing.T) lateAcquire {
	t.Helper()
	server, prefix := sharedServer(t), newPrefix()
	var proxies []*redistest.Proxy
	var endpoints []string
	for range 2 { // one connection keeps the request, and the other serves
		proxy := redistest.NewProxy(t, server.Endpoint())
		proxies, endpoints = append(proxies, proxy), append(endpoints, proxy.Addr())
	}
	late := lateAcquire{
		store:   etcdstore.New(newClientWith(t, clientv3.Config{Endpoints: endpoints}), etcdstore.Prefix(prefix)),
		direct:  etcdstore.New(newClient(t, server), etcdstore.Prefix(prefix)),
		request: newRequest(waitingClient, 1, 1),
	}
	warm := late.request
	warm.Name, warm.Token = "warm", waitingClient+":0" // so the next acquire is a single request
	wantHeld(t, late.store, warm)
	match := prefix + drillName + "/"
	heldByFirst, releaseFirst := proxies[0].HoldNextRequest(match)
	heldBySecond, releaseSecond := proxies[1].HoldNextRequest(match)
	ctx, cancel := context.WithCancel(t.Context()) // a time limit would be sent, and the server would keep it
	ended := make(chan error, 1)
	go func() {
		_, err := late.store.Acquire(ctx, late.request)
		ended <- err
	}()
	select { // the other proxy should hold no further request
	case <-heldByFirst:
		releaseSecond()
		late.release = releaseFirst
	case <-heldBySecond:
		releaseFirst()
		late.release = releaseSecond
	}
	cancel()
	if err := <-ended; !errors.Is(err, dibs.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	return late
}

// wantHolder returns an error unless a token holds the name.
func wantHolder(ctx context.Context, s *etcdstore.Store, token string) error {
	state, err := s.Inspect(ctx, drillName)
	if err == nil && (len(state.Holders) != 1 || state.Holders[0].Token != token) {
		err = errors.New("it does not hold the name")
	}
	return err
}
