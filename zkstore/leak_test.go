package zkstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// A lock with a long TTL is a persistent znode. It should end with the lock, and a request that got
// no lock should leave none.
func TestLongLeasesEnd(t *testing.T) {
	t.Parallel()
	server, prefix := sharedServer(t), newPrefix()
	conn := connect(t, server)
	newLocks := func() *dibs.Client {
		c := dibs.New(open(t, endpoints(server), zkstore.Prefix(prefix)), dibs.TTL(longTTL), dibs.Timeout(patience))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second := newLocks(), newLocks()
	for range 5 {
		lease := lock(t, first, "n")
		if _, err := second.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		waited := make(chan *dibs.Lease, 1)
		go func() { waited <- lock(t, second, "n") }()
		eventually(t, 10*time.Second, func() error { return wantWaiters(t.Context(), first, "n", 1) })
		unlock(t, lease)
		unlock(t, <-waited)
	}
	wantNothing(t, conn, prefix, 10*time.Second)
}

// Requests that do not hold the name, and released leases, leave nothing behind.
func TestNoEntriesAreLeft(t *testing.T) {
	t.Parallel()
	server, prefix := sharedServer(t), newPrefix()
	conn, s := connect(t, server), open(t, endpoints(server), zkstore.Prefix(prefix))
	for _, ttl := range []time.Duration{shortTTL, longTTL} {
		wantHeld(t, s, request("n", "holder", ttl))
		for range 3 {
			wantBusy(t, s, try("n", "try", ttl))
		}
		waiter := request("n", "waiter", ttl)
		wantBusy(t, s, waiter)
		several := try("a", "several", ttl)
		several.With = []string{"n"}
		wantBusy(t, s, several)
		if reply, err := s.Resize(soon(t), waiter); err != nil || reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
		must(t, s.Cancel(soon(t), waiter))
		release(t, s, "n", "holder")
		wantNothing(t, conn, prefix, 10*time.Second)
		wantHeld(t, s, request("n", "holder", ttl))
		if did, err := s.Revoke(soon(t), driver.RevokeRequest{Name: "n", Token: "holder", Reason: "a test"}); !did || err != nil {
			t.Fatal(did, err)
		}
		wantNothing(t, conn, prefix, longestIdle) // the reason stays for a while
	}
}

// A waiter's process ends. Its entry should block others for at most its session, whatever its TTL.
func TestDeadWaiterOfALongLease(t *testing.T) {
	t.Parallel()
	servers, prefix := endpoints(sharedServer(t)), newPrefix()
	s := open(t, servers, zkstore.Prefix(prefix))
	w := newWire(t)
	ends := open(t, servers, zkstore.Prefix(prefix), zkstore.Dial(w.dial))
	wantHeld(t, s, request("n", "holder", shortTTL))
	wantBusy(t, ends, request("n", "dead", longTTL))
	w.isolate()
	begin := time.Now()
	release(t, s, "n", "holder")
	next := request("n", "next", shortTTL)
	eventually(t, longestIdle, func() error {
		reply, err := s.Acquire(soon(t), next)
		if err == nil && !reply.Held {
			err = errors.New("a dead waiter blocks the name")
		}
		return err
	})
	t.Logf("FIGURE a dead waiter blocked the name for %v", time.Since(begin))
	if took := time.Since(begin); took > longSession+3*time.Second {
		t.Errorf("blocked for %v", took)
	}
}
