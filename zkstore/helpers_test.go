package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
	"github.com/go-zookeeper/zk"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience is a time limit for requests on a busy machine.
const patience = 5 * time.Second

// generous is a time limit for other programs on a busy machine.
const generous = 30 * time.Second

// isLong reports whether the long forms of the tests run.
func isLong() bool { return os.Getenv("DIBS_LONG") == "1" }

func lock(t *testing.T, c *dibs.Client, name string, options ...dibs.Option) *dibs.Lease {
	t.Helper()
	l, err := c.Mutex(name).Lock(t.Context(), options...)
	if err != nil {
		t.Error(err)
	}
	return l
}

func unlock(t *testing.T, l *dibs.Lease) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// eventually repeats an attempt until it returns nil.
func eventually(t *testing.T, limit time.Duration, attempt func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

// wantWaiters returns an error unless a number of requests wait for a name.
func wantWaiters(ctx context.Context, c *dibs.Client, name string, want int) error {
	state, err := c.Inspect(ctx, name)
	if err == nil && len(state.Waiters) != want {
		err = fmt.Errorf("%d wait for %s, want %d", len(state.Waiters), name, want)
	}
	return err
}

func endpoints(servers ...*zktest.Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Endpoint())
	}
	return all
}

// open returns a store, which the test closes.
func open(t testing.TB, servers []string, options ...zkstore.Option) *zkstore.Store {
	t.Helper()
	s := zkstore.New(servers, options...)
	t.Cleanup(func() {
		wantExactUses(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// wantExactUses checks that a store counts the uses of its sessions, as soon as its calls end.
func wantExactUses(t testing.TB, s *zkstore.Store) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = s.CheckUses(); err == nil {
			return
		}
	}
	t.Error(err)
}

// connect returns a connection of ZooKeeper's library, which the test closes.
func connect(t testing.TB, servers ...*zktest.Server) *zk.Conn {
	t.Helper()
	const timeout = 10 * time.Second
	conn, events, err := zk.Connect(endpoints(servers...), timeout, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	must(t, err)
	go func() {
		for range events { // it would be full
		}
	}()
	t.Cleanup(conn.Close)
	return conn
}

// silent is a logger that discards all.
type silent struct{}

func (silent) Printf(string, ...any) {}

// everybody are the rights of the test's own znodes.
var everybody = zk.WorldACL(zk.PermAll)

// children returns the entries of a name, unless it has no znode.
func children(conn *zk.Conn, path string) ([]string, error) {
	entries, _, err := conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return entries, err
}

// onlyChild returns the path of a name's only entry.
func onlyChild(t *testing.T, conn *zk.Conn, znode string) string {
	t.Helper()
	entries, err := children(conn, znode)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%s has %q, %v, want a single entry", znode, entries, err)
	}
	return path.Join(znode, entries[0])
}

// create creates a persistent znode and those above it.
func create(t *testing.T, conn *zk.Conn, znode, data string) {
	t.Helper()
	for i, c := range znode {
		if c != '/' || i == 0 {
			continue
		}
		if _, err := conn.Create(znode[:i], nil, 0, everybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(znode[:i], err)
		}
	}
	if _, err := conn.Create(znode, []byte(data), 0, everybody); err != nil {
		t.Fatal(znode, err)
	}
}

// wantNothing waits until no entry below a prefix is left. The znodes of names may stay: the server
// deletes containers later.
func wantNothing(t *testing.T, conn *zk.Conn, prefix string, limit time.Duration) {
	t.Helper()
	eventually(t, limit, func() error { return leftEntries(conn, prefix) })
}

// leftEntries returns an error if an entry below a prefix is left.
func leftEntries(conn *zk.Conn, prefix string) error {
	names, err := children(conn, prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		entries, err := children(conn, path.Join(prefix, name))
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if strings.HasPrefix(name, "%") { // a folder of the store
				var letters []string
				if letters, err = children(conn, path.Join(prefix, name, entry)); err != nil {
					return err
				}
				if len(letters) == 0 {
					continue
				}
			}
			return fmt.Errorf("%s is left", path.Join(prefix, name, entry))
		}
	}
	return nil
}

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

// writer returns an exclusive request among readers.
func writer(name, token string, ttl time.Duration) driver.AcquireRequest {
	r := reader(name, token, ttl)
	r.Weight = driver.Unlimited
	return r
}

// soon returns a context for a request on a busy machine.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t *testing.T, s *zkstore.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply, err := s.Acquire(soon(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func wantHeld(t *testing.T, s *zkstore.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply := acquire(t, s, r)
	if !reply.Held {
		t.Fatalf("%q: %+v, want it held by %q", r.Name, reply, r.Token)
	}
	return reply
}

func wantBusy(t *testing.T, s *zkstore.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply := acquire(t, s, r)
	if reply.Held {
		t.Fatalf("%q: held by %q beside another", r.Name, r.Token)
	}
	return reply
}

func release(t *testing.T, s *zkstore.Store, name, token string) {
	t.Helper()
	if released, err := s.Release(soon(t), driver.ReleaseRequest{Name: name, Token: token}); err != nil || !released {
		t.Fatalf("release of %q: %v, %v", name, released, err)
	}
}

func extend(t *testing.T, s *zkstore.Store, r driver.AcquireRequest, ttl time.Duration) error {
	t.Helper()
	return s.Extend(soon(t), []driver.ExtendRequest{{Name: r.Name, Token: r.Token, Client: r.Client, TTL: ttl, Weight: r.Weight, Limit: r.Limit}})[0]
}

func mustExtend(t *testing.T, s *zkstore.Store, r driver.AcquireRequest, ttl time.Duration) {
	t.Helper()
	if err := extend(t, s, r, ttl); err != nil {
		t.Fatalf("extend %q for %v: %v", r.Name, ttl, err)
	}
}

// wantEmpty checks that a name has neither holders nor waiters.
func wantEmpty(t *testing.T, s *zkstore.Store, name string) {
	t.Helper()
	state, err := s.Inspect(soon(t), name)
	if err != nil || state.Holding+state.Waiting > 0 {
		t.Errorf("%+v, %v, want nothing left", state, err)
	}
}

// processes returns stores on the same znodes, each like that of another process.
func processes(t *testing.T, n int) (stores []*zkstore.Store) {
	t.Helper()
	servers, prefix := endpoints(sharedServer(t)), newPrefix()
	for range n {
		stores = append(stores, open(t, servers, zkstore.Prefix(prefix)))
	}
	return stores
}

// watch returns the events of a client until stop.
func watch(t *testing.T, s *zkstore.Store, client string) (events chan driver.Event, stop func()) {
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
