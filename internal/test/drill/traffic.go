package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// IdleClients locks and unlocks once with many clients, on a server and on a cluster. After that
// the clients hold and await nothing. They should send nothing, except the library's traffic on
// idle connections. A client locking again should be notified as before. With DIBS_LONG=1, 1,000
// clients use one server for a minute.
func (o Opener) IdleClients(t *testing.T, ofLibrary ...string) {
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		clients, quiet := 100, 5*time.Second
		if redistest.Long() {
			clients, quiet = 1000, time.Minute
		}
		wantIdle(t, clients, quiet, func() *redisstore.Store { return o.Single(t, server.Addr()) }, ofLibrary, server)
	})
	o.onCluster(t, func(t *testing.T) {
		c := redistest.StartCluster(t, 3, 0)
		wantIdle(t, 10, 5*time.Second, func() *redisstore.Store { return o.Cluster(t, c.Addrs()) }, append(ofLibrary, "cluster|slots"), c.Nodes()...)
	})
}

func wantIdle(t *testing.T, clients int, quiet time.Duration, open func() *redisstore.Store, ofLibrary []string, servers ...*redistest.Server) {
	all := make([]*dibs.Client, clients)
	for i := range all {
		all[i] = dibs.New(open())
		t.Cleanup(func() { all[i].Close() })
		Unlock(t, Lock(t, all[i], "name:"+strconv.Itoa(i)))
	}
	Eventually(t, "the clients are subscribed", func() bool {
		n := 0
		for _, server := range servers {
			n += strings.Count(fmt.Sprint(server.MustCmd(t, "CLIENT", "LIST", "TYPE", "pubsub")), " sub=1 ")
		}
		return n == clients
	})
	admins := make([]*redistest.Conn, len(servers))
	for i, server := range servers {
		admins[i] = redistest.Dial(server.Addr())
		t.Cleanup(admins[i].Close)
	}
	if sent := leastTraffic(t, admins, quiet, ofLibrary); len(sent) > 0 {
		t.Errorf("%d idle clients have sent %v in %v, want nothing", clients, sent, quiet)
	}
	wantNotified(t, all[0], all[1])
}

// wantNotified hands a lock from a client to another.
func wantNotified(t *testing.T, from, to *dibs.Client) {
	t.Helper()
	held := Lock(t, from, "handed over")
	notified := make(chan bool, 1)
	queued := make(chan struct{})
	hooks := dibs.Hooks{
		Queued:     func(context.Context, dibs.Queued) { close(queued) },
		AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) { notified <- e.Err == nil && e.Notified },
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if l, err := to.Mutex("handed over").Lock(Within(t, Generous), dibs.Observe(hooks)); err != nil {
			t.Error(err)
		} else {
			Unlock(t, l)
		}
	})
	<-queued
	Unlock(t, held)
	if !<-notified {
		t.Error("the waiter was not notified")
	}
}

// leastTraffic returns the number of commands executed by servers for other clients during a
// period, by name, except those in but. Commands in scripts also count. It is the minimum over a
// few periods: the first can contain the end of earlier work.
func leastTraffic(t *testing.T, admins []*redistest.Conn, within time.Duration, but []string) map[string]int {
	t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		before := commandCounts(t, admins)
		time.Sleep(within) // the duration is being measured
		sent := commandCounts(t, admins)
		maps.DeleteFunc(sent, func(name string, n int) bool { return n == before[name] || slices.Contains(but, name) })
		for name := range sent {
			sent[name] -= before[name]
		}
		if len(sent) == 0 || try == tries {
			return sent
		}
	}
}

// commandCounts returns how often each command was executed, but INFO.
func commandCounts(t *testing.T, admins []*redistest.Conn) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, admin := range admins {
		reply, err := admin.Call(t.Context(), "INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := reply.(string)
		for line := range strings.Lines(text) {
			name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			digits, _, _ := strings.Cut(rest, ",")
			if n, err := strconv.Atoi(digits); ok && err == nil && name != "info" {
				counts[name] += n
			}
		}
	}
	return counts
}

// Crowded lets a server refuse all new connections from a client, which holds a lock and waits for
// another. The client should open few connections per second meanwhile. When the server accepts
// them again, the waiter should get its lock.
func (o Opener) Crowded(t *testing.T) {
	for name, refuse := range map[string]func(*testing.T, *redistest.Conn, *redistest.Proxy, bool){
		"maxclients": func(t *testing.T, admin *redistest.Conn, _ *redistest.Proxy, refuse bool) {
			limit := "10000"
			if refuse {
				limit = "1"
			}
			if _, err := admin.Call(t.Context(), "CONFIG", "SET", "maxclients", limit); err != nil {
				t.Fatal(err)
			}
		},
		"resets": func(_ *testing.T, _ *redistest.Conn, proxy *redistest.Proxy, refuse bool) { proxy.Refuse(refuse) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.crowded(t, refuse)
		})
	}
}

func (o Opener) crowded(t *testing.T, refuse func(t *testing.T, admin *redistest.Conn, proxy *redistest.Proxy, refuse bool)) {
	const period, maxPerSecond = 5 * time.Second, 60
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	admin := redistest.Dial(server.Addr())
	t.Cleanup(admin.Close)
	other := dibs.New(o.Single(t, server.Addr()))
	t.Cleanup(func() { other.Close() })
	client := dibs.New(o.Single(t, proxy.Addr()))
	t.Cleanup(func() { client.Close() })

	held, awaited := Lock(t, client, "held"), Lock(t, other, "awaited")
	granted := make(chan error, 1)
	go func() {
		l, err := client.Mutex("awaited").Lock(Within(t, 2*Generous))
		for errors.Is(err, dibs.ErrUnavailable) && t.Context().Err() == nil { // the server refused its request
			l, err = client.Mutex("awaited").Lock(Within(t, 2*Generous))
		}
		if err == nil {
			err = l.Unlock()
		}
		granted <- err
	}()
	Eventually(t, "the client waits", func() bool {
		state, err := other.Inspect(t.Context(), "awaited")
		return err == nil && state.Waiting == 1
	})
	refuse(t, admin, proxy, true)
	proxy.Reset()
	before := proxy.Stats().Accepted
	time.Sleep(period) // the duration is being measured
	opened := proxy.Stats().Accepted - before
	t.Logf("FIGURE %d connections in %v", opened, period)
	if opened > maxPerSecond*int64(period/time.Second) {
		t.Errorf("%d connections in %v, want at most %d per second", opened, period, maxPerSecond)
	}
	refuse(t, admin, proxy, false)
	Unlock(t, awaited)
	if err := <-granted; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	Unlock(t, held)
}

// PollingWaiters lets 1,000 calls on a client wait for as many names on a server without
// notifications. They share a limited number of requests, and all get their locks.
func (o Opener) PollingWaiters(t *testing.T) {
	const waiters, period = 1000, 3 * time.Second
	const maxScripts = 3000 // per second, soon after the start
	server := redistest.Start(t)
	server.MustCmd(t, "ACL", "SETUSER", "default", "resetchannels")
	admin := redistest.Dial(server.Addr())
	t.Cleanup(admin.Close)
	holder := dibs.New(o.Single(t, server.Addr()), dibs.Timeout(Generous))
	t.Cleanup(func() { holder.Close() })
	client := dibs.New(o.Single(t, server.Addr()), dibs.Timeout(Generous)) // all begin together, maybe on a busy machine
	t.Cleanup(func() { client.Close() })

	held := make([]*dibs.Lease, waiters)
	var queued, waiting sync.WaitGroup
	queued.Add(waiters)
	for i := range held {
		name := "name:" + strconv.Itoa(i)
		held[i] = Lock(t, holder, name)
		waiting.Go(func() {
			isQueued := sync.OnceFunc(queued.Done)
			defer isQueued() // also after an error
			hooks := dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { isQueued() }})
			if l, err := client.Mutex(name).Lock(Within(t, 2*Generous), hooks); err != nil {
				t.Error(err)
			} else if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	queued.Wait()
	admins := []*redistest.Conn{admin}
	before := commandCounts(t, admins)
	time.Sleep(period) // the duration is being measured
	after := commandCounts(t, admins)
	perSecond := func(n int) int { return n / int(period/time.Second) }
	scripts, all := perSecond(after["evalsha"]-before["evalsha"]), 0
	for name, n := range after {
		all += n - before[name]
	}
	t.Logf("FIGURE %d waiters without notifications: %d scripts a second, %d commands with those of the scripts", waiters, scripts, perSecond(all))
	if scripts > maxScripts {
		t.Errorf("%d scripts a second, want at most %d", scripts, maxScripts)
	}
	for _, l := range held {
		Unlock(t, l)
	}
	waiting.Wait()
}
