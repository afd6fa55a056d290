package etcdstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd forgets old revisions while a client watches for its grant. Nobody sends heartbeats here, so
// only the watches can notice the grants.
func TestCompaction(t *testing.T) {
	t.Parallel()
	server := etcdtest.NewServer(t)
	for when, run := range map[string]func(*waitingStore){
		"during a watch":                            func(w *waitingStore) { w.compact(); w.release() },
		"before a watch resumes":                    func(w *waitingStore) { w.disconnect(); w.compact(); w.proxy.Heal(); w.release() },
		"after a release, before the watch resumes": func(w *waitingStore) { w.disconnect(); w.release(); w.compact(); w.proxy.Heal() },
	} {
		for mode, limit := range map[string]int{"exclusive": 1, "shared": driver.Unlimited} {
			t.Run(when+", "+mode, func(t *testing.T) {
				t.Parallel()
				w := startWaiting(t, server, limit)
				run(w)
				w.wantEvent(driver.EventGranted)
			})
		}
	}
}

// A waitingStore has a request that waits, on connections through a proxy.
type waitingStore struct {
	t      *testing.T
	admin  *clientv3.Client
	holder *etcdstore.Store
	held   driver.AcquireRequest
	proxy  *redistest.Proxy
	events chan driver.Event
}

func startWaiting(t *testing.T, server *etcdtest.Server, limit int) *waitingStore {
	t.Helper()
	prefix := newPrefix()
	w := &waitingStore{t: t, admin: newClient(t, server), proxy: redistest.NewProxy(t, server.Endpoint())}
	w.holder = etcdstore.New(w.admin, etcdstore.Prefix(prefix))
	w.held = newRequest(holdingClient, driver.Unlimited, driver.Unlimited)
	wantHeld(t, w.holder, w.held)
	waiting := etcdstore.New(newClientWith(t, clientv3.Config{Endpoints: []string{w.proxy.Addr()}}), etcdstore.Prefix(prefix))
	w.events, _ = watch(t, waiting, waitingClient)
	wantBusy(t, waiting, newRequest(waitingClient, 1, limit))
	return w
}

// Names of clients have an ID with 16 characters.
const (
	holdingClient = "host:1:holderAAAAAAAAAA"
	waitingClient = "host:1:waiterAAAAAAAAAA"
)

// newRequest returns the only request of a client.
func newRequest(client string, weight, limit int) driver.AcquireRequest {
	return driver.AcquireRequest{
		Name: drillName, Token: client + ":1", Client: client, Seq: 1, TTL: longSession, Weight: weight, Limit: limit, Queue: true,
		Until: time.Now().Add(longSession),
	}
}

// wantEvent waits for an event.
func (w *waitingStore) wantEvent(want driver.EventKind) {
	w.t.Helper()
	const limit = 6 * time.Second // an entry without heartbeats ends after 10 s
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case e := <-w.events:
			if e.Kind == want {
				return
			}
		case <-timer.C:
			w.t.Fatalf("no event %v within %v", want, limit)
		}
	}
}

// compact writes further revisions, and lets etcd forget all but the last.
func (w *waitingStore) compact() {
	w.t.Helper()
	var last int64
	for i := range 10 {
		reply, err := w.admin.Put(w.t.Context(), "other", fmt.Sprint(i))
		must(w.t, err)
		last = reply.Header.Revision
	}
	_, err := w.admin.Compact(w.t.Context(), last, clientv3.WithCompactPhysical())
	if !errors.Is(err, rpctypes.ErrCompacted) { // by another case
		must(w.t, err)
	}
}

// disconnect ends the waiter's connections until the proxy heals.
func (w *waitingStore) disconnect() {
	w.proxy.Refuse(true)
	w.proxy.Reset()
}

func (w *waitingStore) release() {
	w.t.Helper()
	release(w.t, w.holder, w.held.Name, w.held.Token)
}
