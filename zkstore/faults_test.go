package zkstore_test

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// The first owner of an attached lease may stop renewing it.
func TestAttachedLeaseOutlastsItsFirstOwner(t *testing.T) {
	t.Parallel()
	s := processes(t, 3)
	r := request("n", "token", 2*time.Second)
	wantHeld(t, s[0], r)
	mustExtend(t, s[1], r, 20*time.Second)
	time.Sleep(5 * time.Second)
	wantBusy(t, s[2], try("n", "other", 2*time.Second))
	mustExtend(t, s[1], r, 20*time.Second)
}

// An attach with a shorter TTL does not shorten the lease.
func TestAttachWithAShorterTTL(t *testing.T) {
	t.Parallel()
	s := processes(t, 3)
	r := request("n", "token", 12*time.Second)
	wantHeld(t, s[0], r)
	mustExtend(t, s[1], r, 2*time.Second)
	time.Sleep(8 * time.Second)
	wantBusy(t, s[2], try("n", "other", 2*time.Second))
}

// Two processes can renew a lease, and one of them can stop.
func TestTwoOwnersRenew(t *testing.T) {
	t.Parallel()
	s := processes(t, 3)
	const ttl = 6 * time.Second
	r := request("n", "token", ttl)
	wantHeld(t, s[0], r)
	mustExtend(t, s[1], r, ttl)
	for range 10 {
		time.Sleep(ttl / 5)
		begin := time.Now()
		err := extend(t, s[0], r, ttl)
		if time.Since(begin) > ttl/3 {
			t.Skip("the machine is too slow")
		}
		if err != nil {
			t.Fatal(err)
		}
		wantBusy(t, s[2], try("n", "other", ttl))
	}
}

// The process that acquired a lease can end while another owns it: its session ends with it.
func TestAttachedLeaseOutlastsItsFirstProcess(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{shortTTL, longTTL} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			servers, prefix := endpoints(sharedServer(t)), newPrefix()
			first := zkstore.New(servers, zkstore.Prefix(prefix))
			second := open(t, servers, zkstore.Prefix(prefix))
			r := request("n", "token", ttl)
			wantHeld(t, first, r)
			mustExtend(t, second, r, ttl)
			must(t, first.Close())
			for range 4 {
				mustExtend(t, second, r, ttl)
				wantBusy(t, second, try("n", "other", 2*time.Second))
				time.Sleep(200 * time.Millisecond)
			}
			release(t, second, "n", "token")
			wantEmpty(t, second, "n")
		})
	}
}

// A Resize with a shorter TTL does not shorten the lease.
func TestResizeWithAShorterTTL(t *testing.T) {
	t.Parallel()
	s := processes(t, 2)
	r := reader("n", "token", 2*time.Second)
	wantHeld(t, s[0], r)
	mustExtend(t, s[0], r, 12*time.Second)
	r.Weight = 2
	if reply, err := s[0].Resize(soon(t), r); err != nil || !reply.Held {
		t.Fatalf("%+v, %v", reply, err)
	}
	time.Sleep(7 * time.Second)
	wantBusy(t, s[1], try("n", "other", 2*time.Second))
}

// The names of a multi-lock may be long.
func TestManyLongNames(t *testing.T) {
	t.Parallel()
	s := processes(t, 1)[0]
	r := request(strings.Repeat("/", driver.MaxName), "token", 10*time.Second)
	for i := range driver.MaxNames - 1 {
		r.With = append(r.With, fmt.Sprintf("%0*d", driver.MaxName, i))
	}
	holder := request(r.With[50], "holder", 10*time.Second)
	wantHeld(t, s, holder)
	wantBusy(t, s, r)
	release(t, s, holder.Name, "holder")
	wantHeld(t, s, r)
	for _, name := range r.Names() {
		release(t, s, name, "token")
	}
}

// A client's second Watch notifies the waiters of its first.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	for kind, waiter := range map[string]driver.AcquireRequest{"exclusive": request("n", "waiter", 10*time.Second), "shared": reader("n", "waiter", 10*time.Second)} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := processes(t, 1)[0]
			wantHeld(t, s, request("n", "holder", 10*time.Second))
			_, stop := watch(t, s, waiter.Client)
			wantBusy(t, s, waiter)
			stop()
			events, _ := watch(t, s, waiter.Client)
			wantBusy(t, s, waiter)
			release(t, s, "n", "holder")
			wantEvent(t, events, driver.EventGranted)
		})
	}
}

// A waiter should be notified of its grant although its connection ended in between.
func TestWatchAfterAReconnection(t *testing.T) {
	t.Parallel()
	for kind, make := range map[string]func(name, token string, ttl time.Duration) driver.AcquireRequest{"exclusive": request, "shared": reader} {
		for what, interrupt := range map[string]func(w *wire, released func()){
			"before the release": func(w *wire, released func()) { w.reset(); released() },
			"at the release":     func(w *wire, released func()) { w.isolate(); released(); w.reset(); w.heal() },
		} {
			t.Run(kind+", "+what, func(t *testing.T) {
				t.Parallel()
				f := newFaulty(t)
				wantHeld(t, f.direct, request("n", "holder", 20*time.Second))
				waiter := make("n", "waiter", 20*time.Second)
				events := watchGrants(t, f.store, waiter.Client)
				wantBusy(t, f.store, waiter)
				interrupt(f.wire, func() { release(t, f.direct, "n", "holder") })
				select {
				case <-events:
				case <-time.After(10 * time.Second):
					t.Fatal("no event")
				}
				wantHeld(t, f.store, waiter)
			})
		}
	}
}

// watchGrants returns the events that let a waiter acquire.
func watchGrants(t *testing.T, s *zkstore.Store, client string) <-chan driver.Event {
	t.Helper()
	grants := make(chan driver.Event, 100)
	connected := make(chan struct{}, 100)
	go func() {
		_ = s.Watch(t.Context(), client, nil, func(e driver.Event) {
			switch e.Kind {
			case driver.EventGranted, driver.EventRetry:
				grants <- e
			case driver.EventConnected:
				connected <- struct{}{}
			}
		})
	}()
	<-connected
	return grants
}

// A renewal of many leases finds each of them that ended.
func TestExtendFindsEachLoss(t *testing.T) {
	t.Parallel()
	prefix, server := newPrefix(), sharedServer(t)
	conn, s := connect(t, server), open(t, endpoints(server), zkstore.Prefix(prefix))
	const many = 300
	requests := make([]driver.ExtendRequest, many)
	for i := range requests {
		r := request(fmt.Sprint("n", i), "token", 20*time.Second)
		wantHeld(t, s, r)
		requests[i] = driver.ExtendRequest{Name: r.Name, Token: r.Token, Client: r.Client, TTL: r.TTL, Weight: 1, Limit: 1}
	}
	for _, i := range []int{7, 111, 299} {
		must(t, conn.Delete(onlyChild(t, conn, path.Join(prefix, fmt.Sprint("n", i))), -1))
	}
	for i, err := range s.Extend(soon(t), requests) {
		if lost := i == 7 || i == 111 || i == 299; lost != errors.Is(err, driver.ErrLost) || !lost && err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// A long reservation's remaining time decreases.
func TestRemainingOfAReservation(t *testing.T) {
	t.Parallel()
	s := processes(t, 2)
	wantHeld(t, s[0], request("n", "token", 10*time.Second))
	if _, err := s[0].Release(soon(t), driver.ReleaseRequest{Name: "n", Token: "token", Reserve: time.Hour}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond)
	if reply := wantBusy(t, s[1], try("n", "other", 10*time.Second)); !reply.Reserved || reply.Remaining > time.Hour-time.Second || reply.Remaining < time.Hour-time.Minute {
		t.Errorf("%+v, want the rest of the hour", reply)
	}
}
