package rueidisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/dibslock/dibs/storetest"
	"github.com/redis/rueidis"
)

const (
	ttl = 10 * time.Second

	job = "job" // the name for locks in tests
	key = "lock:job"
)

// dial returns a client that is closed when the test ends. Its buffers are small, because tests
// open many clients.
func dial(t testing.TB, addr string, adjust ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	o := rueidis.ClientOption{
		InitAddress: []string{addr}, RingScaleEachConn: 8,
		ReadBufferEachConn: 1 << 12, WriteBufferEachConn: 1 << 12,
	}
	for _, set := range adjust {
		set(&o)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// With RESP2, rueidis uses a separate connection for subscriptions.
func TestStoreInRESP2(t *testing.T) {
	t.Parallel()
	client := dial(t, redistest.Start(t).Addr(), func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true })
	conformance(t, client)
}

// conformance runs the conformance suite on a single client shared by all cases.
func conformance(t *testing.T, client rueidis.Client) {
	t.Helper()
	var stores atomic.Int32
	t.Run("contract", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) driver.Store {
			return rueidisstore.New(client, redisstore.Prefix(fmt.Sprintf("%d:", stores.Add(1))))
		})
	})
}

// open returns a dibs.Client that is closed when the test ends. Its operation timeout is long, for
// busy machines.
func open(t *testing.T, client rueidis.Client, options ...dibs.Option) *dibs.Client {
	t.Helper()
	c := dibs.New(rueidisstore.New(client), append([]dibs.Option{dibs.TTL(ttl), dibs.Timeout(5 * time.Second)}, options...)...)
	t.Cleanup(func() { c.Close() })
	return c
}

// A hand-off should notify the waiter, on a single server and on a cluster.
func TestHandOffNotifies(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start, "cluster": redistest.StartClusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			holder, waiter := open(t, dial(t, server.Addr())), open(t, dial(t, server.Addr()))
			awaitSubscription(t, server, waiter)
			l := drill.Lock(t, holder, job)
			waits, notified := make(chan struct{}), make(chan bool, 1)
			go func() {
				<-waits
				drill.Unlock(t, l)
			}()
			drill.Unlock(t, drill.Lock(t, waiter, job, dibs.Observe(dibs.Hooks{
				Queued:     func(context.Context, dibs.Queued) { close(waits) },
				AcquireEnd: func(_ context.Context, a dibs.AcquireEnd) { notified <- a.Notified },
			})))
			if !<-notified {
				t.Error("the waiter was not notified")
			}
		})
	}
}

// awaitSubscription locks once with a client, and waits until it is subscribed on the server.
func awaitSubscription(t *testing.T, server *redistest.Server, c *dibs.Client) {
	t.Helper()
	l := drill.Lock(t, c, "warm")
	drill.Unlock(t, l)
	channel := "dibs:c:" + strings.Join(strings.SplitN(string(l.Token()), ":", 4)[:3], ":")
	drill.Eventually(t, "the client has its subscription", func() bool {
		list, _ := server.MustCmd(t, "PUBSUB", "NUMSUB", channel).([]any)
		return len(list) == 2 && list[1] == int64(1)
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start, "cluster": redistest.StartClusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := dial(t, start(t).Addr())
			locks := open(t, client)
			for _, name := range []string{"a1", "a2", "b"} {
				drill.Lock(t, locks, name)
			}
			names, err := rueidisstore.New(client).List(t.Context(), "a*")
			slices.Sort(names)
			if want := []string{"a1", "a2"}; err != nil || !slices.Equal(names, want) {
				t.Errorf("%q, %v, want %q", names, err, want)
			}
		})
	}
}

// Scripts are loaded again after the server dropped them.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks := open(t, dial(t, server.Addr()))
	for range 3 {
		l := drill.Lock(t, locks, job)
		server.MustCmd(t, "SCRIPT", "FLUSH")
		drill.Unlock(t, l)
		server.MustCmd(t, "SCRIPT", "FLUSH")
	}
}
