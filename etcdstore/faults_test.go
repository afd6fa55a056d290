package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/etcdstore"
	"github.com/dibslock/dibs/internal/test/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// request returns an exclusive request that queues. Its token is the application's, so any process
// can use it.
func request(name, token string, ttl time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Token: token, Client: "client-" + token, TTL: ttl, Weight: 1, Limit: 1, Queue: true}
}

// try returns a request that does not queue.
func try(name, token string, ttl time.Duration) driver.AcquireRequest {
	r := request(name, token, ttl)
	r.Queue = false
	return r
}

// reader returns a shared request.
func reader(name, token string, ttl time.Duration) driver.AcquireRequest {
	r := request(name, token, ttl)
	r.Limit = driver.Unlimited
	return r
}

// soon returns a context for a request on a busy machine.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t *testing.T, s *etcdstore.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply, err := s.Acquire(soon(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func wantHeld(t *testing.T, s *etcdstore.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply := acquire(t, s, r)
	if !reply.Held {
		t.Fatalf("%q: %+v, want it held by %q", r.Name, reply, r.Token)
	}
	return reply
}

func wantBusy(t *testing.T, s *etcdstore.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply := acquire(t, s, r)
	if reply.Held {
		t.Fatalf("%q: held by %q beside another", r.Name, r.Token)
	}
	return reply
}

// loseReply sends a request whose reply is lost.
func loseReply(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
}

func release(t *testing.T, s *etcdstore.Store, name, token string) {
	t.Helper()
	if released, err := s.Release(soon(t), driver.ReleaseRequest{Name: name, Token: token}); err != nil || !released {
		t.Fatalf("release of %q: %v, %v", name, released, err)
	}
}

func extend(t *testing.T, s *etcdstore.Store, r driver.AcquireRequest, ttl time.Duration) error {
	t.Helper()
	return s.Extend(soon(t), []driver.ExtendRequest{{Name: r.Name, Token: r.Token, Client: r.Client, TTL: ttl, Weight: r.Weight, Limit: r.Limit}})[0]
}

func mustExtend(t *testing.T, s *etcdstore.Store, r driver.AcquireRequest, ttl time.Duration) {
	t.Helper()
	if err := extend(t, s, r, ttl); err != nil {
		t.Fatalf("extend %q for %v: %v", r.Name, ttl, err)
	}
}

// wantEmpty checks that a name has neither holders nor waiters.
func wantEmpty(t *testing.T, s *etcdstore.Store, name string) {
	t.Helper()
	state, err := s.Inspect(soon(t), name)
	if err != nil || state.Holding+state.Waiting > 0 {
		t.Errorf("%+v, %v, want nothing left", state, err)
	}
}

// processes returns stores on the same keys, each like that of another process.
func processes(t *testing.T, n int) (stores []*etcdstore.Store) {
	t.Helper()
	prefix := newPrefix()
	for range n {
		stores = append(stores, etcdstore.New(newClient(t, sharedServer(t)), etcdstore.Prefix(prefix)))
	}
	return stores
}

// lossy returns a store that loses replies, and its prefix.
func lossy(t *testing.T) (*etcdstore.Store, *lossyKV, string) {
	t.Helper()
	prefix := newPrefix()
	s, kv := newLossyStore(t, etcdstore.Prefix(prefix))
	return s, kv, prefix
}

// watch returns the events of a client until stop.
func watch(t *testing.T, s *etcdstore.Store, client string) (events chan driver.Event, stop func()) {
	t.Helper()
	events = make(chan driver.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Watch(ctx, client, nil, func(e driver.Event) { events <- e })
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	wantEvent(t, events, driver.EventConnected)
	return events, stop
}

func wantEvent(t *testing.T, events chan driver.Event, kind driver.EventKind) driver.Event {
	t.Helper()
	select {
	case e := <-events:
		if e.Kind != kind {
			t.Fatalf("event %+v, want %v", e, kind)
		}
		return e
	case <-time.After(20 * time.Second):
		t.Fatalf("no event, want %v", kind)
	}
	return driver.Event{}
}

// An attached lease belongs to two processes. When both have released it, no key may be in use by
// two tokens.
func TestKeysAfterAttach(t *testing.T) {
	t.Parallel()
	s := processes(t, 2)
	r := request("n", "first", 10*time.Second)
	wantHeld(t, s[0], r)
	mustExtend(t, s[1], r, 10*time.Second)
	release(t, s[1], "n", "first")
	if released, err := s[0].Release(soon(t), driver.ReleaseRequest{Name: "n", Token: "first"}); released || err != nil {
		t.Fatalf("second release: %v, %v", released, err)
	}
	wantHeld(t, s[0], request("n", "second", 10*time.Second))
	wantBusy(t, s[1], request("n", "third", 10*time.Second))
}

// The first owner of an attached lease may stop renewing it.
func TestAttachedLeaseOutlastsItsFirstOwner(t *testing.T) {
	t.Parallel()
	s := processes(t, 3)
	r := request("n", "token", 2*time.Second)
	wantHeld(t, s[0], r)
	mustExtend(t, s[1], r, 20*time.Second)
	time.Sleep(3500 * time.Millisecond)
	wantBusy(t, s[2], try("n", "other", 2*time.Second))
	mustExtend(t, s[1], r, 20*time.Second)
}

// An attach with a shorter TTL does not shorten the lease.
func TestAttachWithAShorterTTL(t *testing.T) {
	t.Parallel()
	s := processes(t, 3)
	r := request("n", "token", 10*time.Second)
	wantHeld(t, s[0], r)
	mustExtend(t, s[1], r, 2*time.Second)
	time.Sleep(6 * time.Second)
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
	time.Sleep(6 * time.Second)
	wantBusy(t, s[1], try("n", "other", 2*time.Second))
}

// A renewal finds that the session that it moves to ended, but not the lease's own.
func TestExtendToAnEndedSession(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	cli := newClient(t, sharedServer(t))
	s := etcdstore.New(cli, etcdstore.Prefix(prefix))
	r, other := request("n", "token", 2*time.Second), request("m", "other", 20*time.Second)
	other.Client = r.Client
	wantHeld(t, s, r)
	wantHeld(t, s, other)
	reply, err := cli.Get(soon(t), prefix+"m/", clientv3.WithPrefix())
	if err != nil || len(reply.Kvs) != 1 {
		t.Fatal(reply, err)
	}
	if _, err := cli.Revoke(soon(t), clientv3.LeaseID(reply.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	mustExtend(t, s, r, 20*time.Second)
	if err := extend(t, s, other, 20*time.Second); !errors.Is(err, driver.ErrLost) {
		t.Errorf("%v, want ErrLost for the lease that ended", err)
	}
}

// Each lease with a long TTL has its own lease in etcd. Requests that do not hold the name, and
// released leases, leave none behind.
func TestLeasesInEtcdEnd(t *testing.T) {
	t.Parallel()
	cli := newClient(t, etcdtest.NewServer(t))
	s := etcdstore.New(cli)
	const long = 5 * time.Minute
	wantHeld(t, s, request("n", "holder", long))
	for i := range 3 {
		wantBusy(t, s, try("n", fmt.Sprint("try", i), long))
	}
	waiter := request("n", "waiter", long)
	wantBusy(t, s, waiter)
	several := request("a", "several", long)
	several.With, several.Queue = []string{"n"}, false
	wantBusy(t, s, several)
	if reply, err := s.Resize(soon(t), waiter); err != nil || reply.Held {
		t.Fatalf("%+v, %v", reply, err)
	}
	if err := s.Cancel(soon(t), waiter); err != nil {
		t.Fatal(err)
	}
	release(t, s, "n", "holder")
	eventually(t, 20*time.Second, func() error { return wantNoLease(t.Context(), cli, long-time.Second) })
}

// A request got no answer, and its repetition acquired and released the name. Then the first
// request arrives.
func TestLateAcquireAfterRelease(t *testing.T) {
	t.Parallel()
	s, kv, prefix := lossy(t)
	r := request("n", "token", 10*time.Second)
	kv.loseNext(prefix+"n/", true)
	_, err := s.Acquire(soon(t), r)
	loseReply(t, err)
	wantHeld(t, s, r)
	release(t, s, "n", "token")
	kv.runLate(t)
	wantEmpty(t, s, "n")
}

// A try for several names got no answer, and its repetition found a name busy. Then it is
// cancelled, and the first request arrives.
func TestLateTryOfSeveralNames(t *testing.T) {
	t.Parallel()
	s, kv, prefix := lossy(t)
	wantHeld(t, s, request("a", "holder", 10*time.Second))
	r := try("a", "token", 10*time.Second)
	r.With = []string{"b"}
	kv.loseNext(prefix+"b/", true)
	_, err := s.Acquire(soon(t), r)
	loseReply(t, err)
	wantBusy(t, s, r)
	if err := s.Cancel(soon(t), r); err != nil {
		t.Fatal(err)
	}
	release(t, s, "a", "holder")
	kv.runLate(t)
	wantEmpty(t, s, "a")
	wantEmpty(t, s, "b")
}

// A release got no answer, and the application uses the token again. Then the release arrives.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	for _, reserve := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprint("reserve ", reserve), func(t *testing.T) {
			t.Parallel()
			s, kv, prefix := lossy(t)
			r := request("n", "token", 10*time.Second)
			wantHeld(t, s, r)
			kv.loseNext(prefix+"n/", true)
			_, err := s.Release(soon(t), driver.ReleaseRequest{Name: "n", Token: "token", Reserve: reserve})
			loseReply(t, err)
			wantHeld(t, s, r)
			kv.runLate(t)
			state, err := s.Inspect(soon(t), "n")
			if err != nil || len(state.Holders) != 1 || state.Holders[0].Reserved {
				t.Fatalf("%+v, %v, want the new lease", state, err)
			}
		})
	}
}

// A renewal got no answer, and arrives after a renewal with a longer TTL.
func TestLateRenewal(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	cli := newClient(t, sharedServer(t))
	kv := &lossyKV{KV: cli.KV}
	cli.KV = kv
	s := etcdstore.New(cli, etcdstore.Prefix(prefix))
	r := request("n", "token", 2*time.Second)
	wantHeld(t, s, r)
	kv.loseNext(prefix+"n/", true)
	loseReply(t, extend(t, s, r, 10*time.Second))
	mustExtend(t, s, r, 50*time.Second)
	kv.runLate(t)
	reply, err := cli.Get(soon(t), prefix+"n/", clientv3.WithPrefix())
	if err != nil || len(reply.Kvs) != 1 {
		t.Fatal(reply, err)
	}
	if left, err := cli.TimeToLive(soon(t), clientv3.LeaseID(reply.Kvs[0].Lease)); err != nil || left.GrantedTTL < 50 {
		t.Errorf("%+v, %v, want the lease of the last renewal", left, err)
	}
}

// A reader's entry can exist before a writer that then holds the name, because the reader's reply
// was lost.
func TestFenceOfAReaderAfterALostReply(t *testing.T) {
	t.Parallel()
	s, kv, prefix := lossy(t)
	holder, writer := request("n", "holder", 10*time.Second), request("n", "writer", 10*time.Second)
	wantHeld(t, s, holder)
	wantBusy(t, s, writer)
	r := reader("n", "reader", 10*time.Second)
	kv.loseNext(prefix+"n/", false)
	kv.skip = 1 // the first transaction only finds that the queue is not empty
	_, err := s.Acquire(soon(t), r)
	loseReply(t, err)
	release(t, s, "n", "holder")
	fence := wantHeld(t, s, writer).Fence
	release(t, s, "n", "writer")
	if own := wantHeld(t, s, r).Fence; own <= fence {
		t.Errorf("fence %d after %d", own, fence)
	}
}

func TestReleaseAfterALostReply(t *testing.T) {
	t.Parallel()
	s, kv, prefix := lossy(t)
	kv.loseNext(prefix+"n/", false)
	_, err := s.Acquire(soon(t), request("n", "token", 10*time.Second))
	loseReply(t, err)
	release(t, s, "n", "token")
	wantEmpty(t, s, "n")
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
	r.With = append(r.With, "one more")
	if _, err := s.Acquire(soon(t), r); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid for too many names", err)
	}
}

// Another library's locks can have keys in folders below a queue.
func TestFoldersBelowAQueue(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	cli := newClient(t, sharedServer(t))
	s := etcdstore.New(cli, etcdstore.Prefix(prefix))
	holder, waiter := request("n", "holder", 10*time.Second), request("n", "waiter", 10*time.Second)
	events, _ := watch(t, s, waiter.Client)
	wantHeld(t, s, holder)
	for i := range 20 {
		if _, err := cli.Put(soon(t), fmt.Sprintf("%sn/folder/%d", prefix, i), ""); err != nil {
			t.Fatal(err)
		}
	}
	wantBusy(t, s, waiter)
	select {
	case e := <-events:
		t.Fatalf("%+v, while another token holds the name", e)
	case <-time.After(500 * time.Millisecond):
	}
	release(t, s, "n", "holder")
	wantEvent(t, events, driver.EventGranted)
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

// A renewal that moves the entry loses its reply.
func TestLostReplyToAMove(t *testing.T) {
	t.Parallel()
	s, kv, prefix := lossy(t)
	wantHeld(t, s, request("n", "holder", 2*time.Second))
	waiter := request("n", "waiter", 2*time.Second)
	wantBusy(t, s, waiter)
	release(t, s, "n", "holder")
	kv.loseNext(prefix+"n/", false) // the move to the lease's session
	_, err := s.Acquire(soon(t), waiter)
	loseReply(t, err)
	wantHeld(t, s, waiter)
	wantBusy(t, s, try("n", "other", 2*time.Second))
}

// A renewal of many leases finds each of them that ended.
func TestExtendFindsEachLoss(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	cli := newClient(t, sharedServer(t))
	s := etcdstore.New(cli, etcdstore.Prefix(prefix))
	const many = 300
	requests := make([]driver.ExtendRequest, many)
	for i := range requests {
		r := request(fmt.Sprint("n", i), "token", 20*time.Second)
		wantHeld(t, s, r)
		requests[i] = driver.ExtendRequest{Name: r.Name, Token: r.Token, Client: r.Client, TTL: r.TTL, Weight: 1, Limit: 1}
	}
	for _, i := range []int{7, 111, 299} {
		if _, err := cli.Delete(soon(t), fmt.Sprintf("%sn%d/", prefix, i), clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
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
