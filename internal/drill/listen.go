package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A ListenOpener opens the Conns of an adapter. They are closed with the test.
type ListenOpener struct {
	Single   func(t testing.TB, addr string) redisconn.Listener
	Sentinel func(t testing.TB, addrs []string, master string) redisconn.Listener
	Cluster  func(t testing.TB, addrs []string) redisconn.Listener
}

// soon is the time within which a failure must be noticed, on an idle machine.
const soon = 5 * time.Second

// Listen runs the scenarios of redisconn.Listener on one server. It may not run in
// parallel with other tests, because it counts goroutines.
func (o ListenOpener) Listen(t *testing.T) {
	t.Run("many channels", func(t *testing.T) { o.manyChannels(t, false) })
	t.Run("many sharded channels", func(t *testing.T) { o.manyChannels(t, true) })
	Together(t, map[string]func(*testing.T){
		"shared channel": o.sharedChannel,
		"killed":         o.killedConnection,
		"unresponsive":   o.unresponsiveConnection,
		"ended context":  o.endedContext,
		"refused":        o.refusedChannel,
		"kept":           o.keptChannel,
		"unknown":        o.unknownCommand,
		"come and go":    o.comeAndGo,
	})
}

// manyChannels listens on 1,000 channels at once, over one connection, of which nothing
// is left a few seconds after the end.
func (o ListenOpener) manyChannels(t *testing.T, sharded bool) {
	const n = 1000
	server := redistest.Start(t)
	if sharded {
		redistest.SkipBefore7(t, server)
	}
	conn := o.Single(t, server.Addr())
	goroutines, memory, start := runtime.NumGoroutine(), usedMemory(), time.Now()
	all := make([]*Listening, n)
	for i := range all {
		all[i] = ListenOn(t, conn, channelName(i), sharded)
	}
	for _, l := range all {
		l.WantMessage("")
	}
	t.Logf("FIGURE %d calls of Listen (sharded %v) are confirmed after %v; %d bytes each", n, sharded, time.Since(start), (usedMemory()-memory)/n)
	want := fmt.Sprintf(" sub=%d ", n)
	if sharded {
		want = fmt.Sprintf(" ssub=%d ", n)
	}
	found := subscriptions(t, server)
	if len(found) != 1 || !strings.Contains(found[0], want) {
		t.Fatalf("connections with subscriptions: %q, want one with%s", found, want)
	}
	start = time.Now()
	for i := range all {
		publish(t, server, sharded, channelName(i), fmt.Sprint(i))
	}
	for i, l := range all {
		l.WantMessage(fmt.Sprint(i))
	}
	t.Logf("FIGURE %d messages, published one after another, are received after %v", n, time.Since(start))
	start = time.Now()
	for _, l := range all {
		l.cancel()
	}
	for _, l := range all {
		l.WantEnd(context.Canceled)
	}
	took := time.Since(start)
	Eventually(t, "the channels are unsubscribed", func() bool { return channels(t, server, sharded) == 0 })
	t.Logf("FIGURE they end after %v, and their channels are unsubscribed after %v", took, time.Since(start))
	awaitClosed(t, server, found[0])
	t.Logf("FIGURE the connection is closed after %v", time.Since(start))
	Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
}

func channelName(i int) string { return fmt.Sprintf("channel:%d", i) }

// awaitClosed waits until a connection, given as a line of CLIENT LIST, is closed.
func awaitClosed(t *testing.T, server *redistest.Server, connection string) {
	t.Helper()
	id, _, _ := strings.Cut(strings.TrimPrefix(connection, "id="), " ")
	Eventually(t, "the connection is closed", func() bool {
		return server.MustCmd(t, "CLIENT", "LIST", "ID", id) == ""
	})
}

func usedMemory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// sharedChannel has two calls on one channel. It is subscribed once, until the last one
// ends.
func (o ListenOpener) sharedChannel(t *testing.T) {
	server := redistest.Start(t)
	redistest.SkipBefore7(t, server)
	conn := o.Single(t, server.Addr())
	for _, sharded := range []bool{false, true} {
		a, other := ListenOn(t, conn, "shared", sharded), ListenOn(t, conn, "other", sharded)
		a.WantMessage("")
		b := ListenOn(t, conn, "shared", sharded)
		b.WantMessage("")
		other.WantMessage("")
		publish(t, server, sharded, "shared", "1")
		a.WantMessage("1")
		b.WantMessage("1")
		a.End()
		publish(t, server, sharded, "shared", "2")
		b.WantMessage("2")
		b.End()
		Eventually(t, "one channel is left", func() bool { return channels(t, server, sharded) == 1 })
		publish(t, server, sharded, "other", "3")
		other.WantMessage("3")
		other.End()
	}
}

// killedConnection kills the connection. All calls end at once, and new ones succeed.
func (o ListenOpener) killedConnection(t *testing.T) {
	const n, limit = 100, 2 * time.Second
	server := redistest.Start(t)
	conn := o.Single(t, server.Addr())
	for round := range 3 {
		all := make([]*Listening, n)
		for i := range all {
			all[i] = ListenOn(t, conn, channelName(i), false)
		}
		for _, l := range all {
			l.WantMessage("")
		}
		machine := WatchMachine(t.Context(), server.Addr())
		start := time.Now()
		server.MustCmd(t, "CLIENT", "KILL", "TYPE", "pubsub")
		for _, l := range all {
			l.WantFailure()
		}
		if took, late := time.Since(start), machine.Late(); took > limit+late {
			t.Errorf("round %d: the calls end after %v, want %v (control %v)", round, took, limit, late)
		}
	}
}

// unresponsiveConnection stalls the network. All calls end within seconds.
func (o ListenOpener) unresponsiveConnection(t *testing.T) {
	server := redistest.Start(t)
	redistest.SkipBefore7(t, server)
	proxy := redistest.NewProxy(t, server.Addr())
	conn := o.Single(t, proxy.Addr())
	a, b := ListenOn(t, conn, "a", false), ListenOn(t, conn, "b", true)
	a.WantMessage("")
	b.WantMessage("")
	const idle = 4 * time.Second
	select { // a connection without messages lasts
	case err := <-a.ended:
		t.Fatal(err)
	case err := <-b.ended:
		t.Fatal(err)
	case <-time.After(idle):
	}
	machine := WatchMachine(t.Context(), server.Addr())
	proxy.Freeze()
	start := time.Now()
	a.WantFailure()
	b.WantFailure()
	if took, late := time.Since(start), machine.Late(); took > soon+late {
		t.Errorf("the calls end after %v, want %v (control %v)", took, soon, late)
	}
	proxy.Thaw()
}

// endedContext ends contexts while a connection is opened, and while it stalls.
func (o ListenOpener) endedContext(t *testing.T) {
	const limit = 100 * time.Millisecond
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	conn := o.Single(t, proxy.Addr())
	machine := WatchMachine(t.Context(), server.Addr())
	end := func(what string, l *Listening) {
		t.Helper()
		start := time.Now()
		l.End()
		if took, late := time.Since(start), machine.Late(); took > limit+late {
			t.Errorf("%s: Listen ends %v after its context, want %v (control %v)", what, took, limit, late)
		}
	}
	proxy.Freeze()
	opening := ListenOn(t, conn, "a", false)
	end("opening", opening)
	proxy.Thaw()
	open := ListenAgain(t, conn, "a", false)
	proxy.Freeze()
	subscribing := ListenOn(t, conn, "b", false)
	end("subscribing", subscribing)
	end("subscribed", open)
	proxy.Thaw()
}

// refusedChannel listens without permission. Other calls go on.
func (o ListenOpener) refusedChannel(t *testing.T) {
	server := redistest.Start(t)
	redistest.SkipBefore7(t, server)
	server.MustCmd(t, "ACL", "SETUSER", "default", "resetchannels", "&allowed:*")
	conn := o.Single(t, server.Addr())
	for _, sharded := range []bool{false, true} {
		l := ListenOn(t, conn, "allowed:a", sharded)
		l.WantMessage("")
		for range 3 {
			refused := ListenOn(t, conn, "forbidden", sharded)
			if err := refused.Failure(); !redisconn.HasCode(err, "NOPERM") {
				t.Errorf("%v, want NOPERM", err)
			}
		}
		publish(t, server, sharded, "allowed:a", "1")
		l.WantMessage("1")
		l.End()
	}
}

// keptChannel has a user who may not unsubscribe. Calls come and go nevertheless.
func (o ListenOpener) keptChannel(t *testing.T) {
	server := redistest.Start(t)
	redistest.SkipBefore7(t, server)
	server.MustCmd(t, "ACL", "SETUSER", "default", "-unsubscribe", "-sunsubscribe")
	conn := o.Single(t, server.Addr())
	for _, sharded := range []bool{false, true} {
		a, other := ListenOn(t, conn, "a", sharded), ListenOn(t, conn, "other", sharded)
		a.WantMessage("")
		other.WantMessage("")
		found := subscriptions(t, server)
		a.End()
		a = ListenOn(t, conn, "a", sharded)
		a.WantMessage("")
		publish(t, server, sharded, "a", "1")
		a.WantMessage("1")
		publish(t, server, sharded, "other", "2")
		other.WantMessage("2")
		a.End()
		other.End()
		awaitClosed(t, server, found[0])
	}
}

// unknownCommand has a server without sharded channels, as before Redis 7.
func (o ListenOpener) unknownCommand(t *testing.T) {
	redistest.SkipBefore7(t, redistest.Start(t)) // it does not know the option's command either
	server := redistest.Start(t, "--rename-command", "SSUBSCRIBE", "")
	conn := o.Single(t, server.Addr())
	err := ListenOn(t, conn, "a", true).Failure()
	if !redisconn.HasCode(err, "ERR unknown command") {
		t.Errorf("%v, want an unknown command", err)
	}
}

// comeAndGo has calls that come and go at random, while connections are killed. A
// confirmed call receives what is published after that, or fails.
func (o ListenOpener) comeAndGo(t *testing.T) {
	const workers, rounds, shared = 8, 500, 3
	server := redistest.Start(t)
	conn := o.Single(t, server.Addr())
	publisher := redistest.Dial(server.Addr())
	t.Cleanup(publisher.Close)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	done := make(chan struct{})
	var group sync.WaitGroup
	var received, failed atomic.Int64
	for w := range workers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range rounds {
				l := ListenOn(t, conn, channelName(r.IntN(shared)), false)
				if r.IntN(4) == 0 { // at any moment of its SUBSCRIBE
					l.cancel()
					if err := <-l.ended; err == nil {
						t.Error("Listen returned without a reason")
					}
					continue
				}
				own := fmt.Sprintf("%d.%d", w, i)
				switch got, err := l.receiveOwn(publisher, own); {
				case err != nil:
					t.Errorf("call %s: %v", own, err)
				case got:
					received.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
	}
	go func() { group.Wait(); close(done) }()
	for r := rand.New(rand.NewPCG(seed, workers)); ; {
		select {
		case <-time.After(time.Duration(r.IntN(20)) * time.Millisecond):
			server.MustCmd(t, "CLIENT", "KILL", "TYPE", "pubsub")
			continue
		case <-done:
		}
		break
	}
	if received.Load() == 0 || failed.Load() == 0 {
		t.Errorf("%d calls received their messages, and %d failed: the test shows nothing", received.Load(), failed.Load())
	}
}

// receiveOwn publishes a message once the call is confirmed, and waits for it. It returns
// false if the call fails first.
func (l *Listening) receiveOwn(publisher *redistest.Conn, own string) (received bool, err error) {
	defer l.cancel()
	patience := time.After(Generous)
	for published := false; ; {
		select {
		case message := <-l.messages:
			if message == own {
				return true, nil
			}
			if message == "" && !published {
				published = true
				if _, err := publisher.Call(l.t.Context(), "PUBLISH", l.channel, own); err != nil {
					return false, err
				}
			}
		case err := <-l.ended:
			if err == nil {
				return false, errors.New("Listen returned without a reason")
			}
			return false, nil
		case <-patience:
			return false, fmt.Errorf("no message; published: %v", published)
		}
	}
}

// ListenSentinel kills the master. The calls end, and new ones listen on the new master.
func (o ListenOpener) ListenSentinel(t *testing.T) {
	s := redistest.StartSentinels(t, 2, 3)
	conn := o.Sentinel(t, s.Addrs(), s.MasterName)
	l := ListenAgain(t, conn, "a", false)
	dead, err := s.KillMaster()
	if err != nil {
		t.Fatal(err)
	}
	l.WantFailure()
	master, err := s.WaitPromoted(dead)
	if err != nil {
		t.Fatal(err)
	}
	l = ListenAgain(t, conn, "a", false)
	publish(t, master, false, "a", "1")
	l.WantMessage("1")
	l.End()
}

// ListenCluster listens on many channels of a cluster. A slot moves, and a master dies.
func (o ListenOpener) ListenCluster(t *testing.T) {
	const n = 300
	c := redistest.StartCluster(t, 3, 1)
	redistest.SkipBefore7(t, c.Nodes()[0])
	conn := o.Cluster(t, c.Addrs())
	for _, sharded := range []bool{false, true} {
		all := make([]*Listening, n)
		for i := range all {
			all[i] = ListenOn(t, conn, channelName(i), sharded)
		}
		for _, l := range all {
			l.WantMessage("")
		}
		wantClusterSubscriptions(t, c, sharded, n)
		for i, l := range all {
			node := masterOf(t, c, redistest.Slot(channelName(i)))
			if !sharded {
				node = c.Nodes()[i%len(c.Nodes())]
			}
			publish(t, node, sharded, channelName(i), fmt.Sprint(i))
			l.WantMessage(fmt.Sprint(i))
		}
		if sharded {
			moveSlot(t, c, conn, all)
			continue
		}
		for _, l := range all {
			l.End()
		}
	}
	moveUnnoticed(t, c, conn)
	moveToNew(t, c, conn)
	killOwner(t, c, conn)
}

// wantClusterSubscriptions checks that each master has one connection with subscriptions,
// or that there is one only, and that together they have n channels.
func wantClusterSubscriptions(t *testing.T, c *redistest.Cluster, sharded bool, n int) {
	t.Helper()
	connections, subscribed := 0, 0
	for _, node := range c.Nodes() {
		found := subscriptions(t, node)
		connections += len(found)
		if len(found) > 1 {
			t.Errorf("node %s has several connections with subscriptions: %q", node.Addr(), found)
		}
		subscribed += channels(t, node, sharded)
	}
	want := 1
	if sharded {
		want = 3
	}
	if connections != want || subscribed != n {
		t.Errorf("%d connections with %d channels, want %d with %d (sharded %v)", connections, subscribed, want, n, sharded)
	}
}

// moveSlot moves the slot of the first channel. Its call ends, and the others go on.
func moveSlot(t *testing.T, c *redistest.Cluster, conn redisconn.Listener, all []*Listening) {
	t.Helper()
	slot := redistest.Slot(all[0].channel)
	from := masterOf(t, c, slot)
	to := c.Nodes()[slices.IndexFunc(c.Nodes(), func(s *redistest.Server) bool { return s != from })]
	if err := c.Migrate(to, slot); err != nil {
		t.Fatal(err)
	}
	all[0].WantFailure()
	all[0] = ListenAgain(t, conn, all[0].channel, true)
	for i, l := range all {
		publish(t, masterOf(t, c, redistest.Slot(l.channel)), true, l.channel, fmt.Sprint("again ", i))
		l.WantMessage(fmt.Sprint("again ", i))
		l.End()
	}
}

// moveUnnoticed moves a slot without a subscription. The next call reaches the former
// owner, which answers MOVED. It does not end a call on the same connection.
func moveUnnoticed(t *testing.T, c *redistest.Cluster, conn redisconn.Listener) {
	t.Helper()
	const moving = "moving"
	from := masterOf(t, c, redistest.Slot(moving))
	to := c.Nodes()[slices.IndexFunc(c.Nodes(), func(s *redistest.Server) bool { return s != from })]
	ListenAgain(t, conn, moving, true).End()
	stays := ""
	for i := 0; stays == "" || masterOf(t, c, redistest.Slot(stays)) != from; i++ {
		stays = channelName(i)
	}
	l := ListenAgain(t, conn, stays, true)
	if err := c.Migrate(to, redistest.Slot(moving)); err != nil {
		t.Fatal(err)
	}
	moved := ListenAgain(t, conn, moving, true)
	publish(t, to, true, moving, "1")
	moved.WantMessage("1")
	publish(t, from, true, stays, "2")
	l.WantMessage("2")
	moved.End()
	l.End()
}

// moveToNew moves a slot to a master that joined the cluster after the client had connected.
// No command of the client has been redirected to that master.
func moveToNew(t *testing.T, c *redistest.Cluster, conn redisconn.Listener) {
	t.Helper()
	const moving = "to the new node"
	l := ListenAgain(t, conn, moving, true)
	added := c.AddMaster(t)
	if err := c.Migrate(added, redistest.Slot(moving)); err != nil {
		t.Fatal(err)
	}
	l.WantFailure()
	l = ListenAgain(t, conn, moving, true)
	publish(t, added, true, moving, "1")
	l.WantMessage("1")
	l.End()
}

// killOwner kills the master that has a channel. The call ends, and succeeds again after
// the failover.
func killOwner(t *testing.T, c *redistest.Cluster, conn redisconn.Listener) {
	t.Helper()
	l := ListenAgain(t, conn, "a", true)
	dead, err := c.KillMaster(redistest.Slot("a"))
	if err != nil {
		t.Fatal(err)
	}
	l.WantFailure()
	master, _, err := c.WaitFailover(dead)
	if err != nil {
		t.Fatal(err)
	}
	l = ListenAgain(t, conn, "a", true)
	publish(t, master, true, "a", "1")
	l.WantMessage("1")
	l.End()
}

// Listening is a call of Listen that runs.
type Listening struct {
	t        *testing.T
	channel  string
	cancel   context.CancelFunc
	messages chan string
	ended    chan error
}

// ListenOn listens on a channel until the test ends.
func ListenOn(t *testing.T, conn redisconn.Listener, channel string, sharded bool) *Listening {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &Listening{t: t, channel: channel, cancel: cancel, messages: make(chan string, 1), ended: make(chan error, 1)}
	go func() {
		l.ended <- conn.Listen(ctx, channel, sharded, func(message string) {
			select {
			case l.messages <- message:
			case <-ctx.Done():
			}
		})
	}()
	return l
}

// ListenAgain calls ListenOn again, after a pause, until it is confirmed.
func ListenAgain(t *testing.T, conn redisconn.Listener, channel string, sharded bool) *Listening {
	t.Helper()
	const pause = 20 * time.Millisecond
	for end := time.Now().Add(Generous); ; time.Sleep(pause) {
		l := ListenOn(t, conn, channel, sharded)
		select {
		case message := <-l.messages:
			if message != "" {
				t.Fatalf("channel %s: message %q before the confirmation", channel, message)
			}
			return l
		case err := <-l.ended:
			if time.Now().After(end) {
				t.Fatalf("channel %s: %v", channel, err)
			}
		}
	}
}

// WantMessage checks the next message. It is empty for the confirmation.
func (l *Listening) WantMessage(want string) {
	l.t.Helper()
	select {
	case message := <-l.messages:
		if message != want {
			l.t.Fatalf("channel %s: message %q, want %q", l.channel, message, want)
		}
	case err := <-l.ended:
		l.t.Fatalf("channel %s: ended with %v, want message %q", l.channel, err, want)
	case <-time.After(Generous):
		l.t.Fatalf("channel %s: timed out waiting for message %q", l.channel, want)
	}
}

// End ends the context of the call, and checks that the call ends.
func (l *Listening) End() {
	l.t.Helper()
	l.cancel()
	l.WantEnd(context.Canceled)
}

// WantEnd checks why the call ends.
func (l *Listening) WantEnd(want error) {
	l.t.Helper()
	select {
	case err := <-l.ended:
		if !errors.Is(err, want) {
			l.t.Errorf("channel %s: ended with %v, want %v", l.channel, err, want)
		}
	case <-time.After(Generous):
		l.t.Fatalf("channel %s: timed out waiting for the end of the call", l.channel)
	}
}

// WantFailure waits until the call ends before its context.
func (l *Listening) WantFailure() {
	l.t.Helper()
	if l.Failure() == nil {
		l.t.Errorf("channel %s: ended without a reason", l.channel)
	}
}

// Failure waits until the call ends before its context, and returns the reason.
func (l *Listening) Failure() error {
	l.t.Helper()
	defer l.cancel()
	for patience := time.After(Generous); ; {
		select {
		case <-l.messages: // published before the failure
		case err := <-l.ended:
			if errors.Is(err, context.Canceled) {
				l.t.Fatalf("channel %s: ended with %v, want a failure", l.channel, err)
			}
			return err
		case <-patience:
			l.t.Fatalf("channel %s: timed out waiting for a failure", l.channel)
		}
	}
}

// publish publishes a message, which at least one connection must receive on a single
// server.
func publish(t *testing.T, server *redistest.Server, sharded bool, channel, message string) {
	t.Helper()
	command := "PUBLISH"
	if sharded {
		command = "SPUBLISH"
	}
	server.MustCmd(t, command, channel, message)
}

// clients returns the lines of CLIENT LIST for the clients of a type.
func clients(t *testing.T, server *redistest.Server, kind string) []string {
	t.Helper()
	text, _ := server.MustCmd(t, "CLIENT", "LIST", "TYPE", kind).(string)
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// subscriptions returns the lines of CLIENT LIST for connections with subscriptions.
func subscriptions(t *testing.T, server *redistest.Server) []string {
	t.Helper()
	return slices.DeleteFunc(clients(t, server, "pubsub"), func(line string) bool {
		return strings.Contains(line, " sub=0 ") && strings.Contains(line, " ssub=0 ")
	})
}

// channels returns how many channels of a server have subscriptions.
func channels(t *testing.T, server *redistest.Server, sharded bool) int {
	t.Helper()
	command := "CHANNELS"
	if sharded {
		command = "SHARDCHANNELS"
	}
	list, _ := server.MustCmd(t, "PUBSUB", command).([]any)
	return len(list)
}
