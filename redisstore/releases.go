package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// releases listen for the release of foreign locks, for waiters that are first in the queue of
// dibs. A message makes the waiter retry at once. It is a hint: the waiter also polls. They are
// safe for concurrent use.
type releases struct {
	conn   redisconn.Conn
	format wire.Format

	mu       sync.Mutex
	clients  map[string]watchingClient
	channels map[string]*releaseChannel // by lock key
	events   keyspaceEvents
}

// A watchingClient is a client whose Watch runs.
type watchingClient struct {
	ctx       context.Context // ends with Watch
	on        func(driver.Event)
	listening *sync.WaitGroup
}

// A releaseChannel is being listened on for one lock key.
type releaseChannel struct {
	on    func(driver.Event) // of the client that waits
	token string             // of its request
	last  time.Time          // when a reply last said that it waits
}

// listenFor is for how long a channel is listened on after a reply said that a waiter is
// first behind a foreign holder. The same waiter polls more often than that.
const listenFor = 3 * time.Second

// watch records that the Watch of a client runs, until the returned function is called.
func (r *releases) watch(ctx context.Context, client string, on func(driver.Event)) (end func()) {
	if _, ok := r.conn.(redisconn.Listener); !ok {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients == nil {
		r.clients, r.channels = make(map[string]watchingClient), make(map[string]*releaseChannel)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := watchingClient{ctx, on, new(sync.WaitGroup)}
	r.clients[client] = w
	return func() {
		r.mu.Lock()
		delete(r.clients, client)
		r.mu.Unlock()
		cancel()
		w.listening.Wait()
	}
}

// expect records that a request waits first behind a foreign holder.
func (r *releases) expect(name string, c driver.AcquireRequest) {
	key := r.format.Prefix + name
	r.mu.Lock()
	defer r.mu.Unlock()
	client, ok := r.clients[c.Client]
	if !ok {
		return
	}
	channel := r.channels[key]
	if channel == nil {
		channel = new(releaseChannel)
		r.channels[key] = channel
		client.listening.Go(func() { r.listen(client.ctx, key, channel) })
	}
	channel.on, channel.token, channel.last = client.on, c.Token, time.Now()
}

// listening returns on how many channels this client listens for the release of a name.
func (r *releases) listening(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.channels[r.format.Prefix+name] == nil {
		return 0
	}
	return 1
}

// listen listens until no waiter has been first behind a foreign holder for a while, or until
// the Watch of the client that began it ends.
func (r *releases) listen(ctx context.Context, key string, channel *releaseChannel) {
	listening, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.receive(listening, key, channel) })
	pause := time.NewTicker(listenFor)
	defer pause.Stop()
	for r.stillExpected(ctx, key, channel) {
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	end()
	running.Wait()
}

// stillExpected reports whether to listen on, and forgets the channel if not.
func (r *releases) stillExpected(ctx context.Context, key string, channel *releaseChannel) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil && time.Since(channel.last) < listenFor {
		return true
	}
	delete(r.channels, key)
	return false
}

// receive passes on messages, until ctx ends or listening fails. A failure is not reported:
// the waiter polls, and the next one listens again.
func (r *releases) receive(ctx context.Context, key string, channel *releaseChannel) {
	conn := r.conn.(redisconn.Listener) // see watch
	retry := func() {
		r.mu.Lock()
		on, token := channel.on, channel.token
		r.mu.Unlock()
		on(driver.Event{Kind: driver.EventRetry, Token: token})
	}
	if r.format.Redisson != nil {
		on := func(string) { retry() }
		err := conn.Listen(ctx, foreign.RedissonChannel(key), r.format.Sharded, on)
		var refusal redisconn.ServerError
		if r.format.Sharded && errors.As(err, &refusal) { // a cluster before Redis 7
			_ = conn.Listen(ctx, foreign.RedissonChannel(key), false, on)
		}
		return
	}
	prefix, ok := r.events.prefix(ctx, r.conn)
	if !ok || r.format.Sharded { // in a cluster, each node notifies of its own keys only
		return
	}
	_ = conn.Listen(ctx, prefix+key, false, func(event string) {
		if event == "" || slices.Contains([]string{"del", "unlink", "expired", "evicted"}, event) {
			retry()
		}
	})
}

// keyspaceEvents knows whether the server notifies of changes of keys, which is off by
// default. It is safe for concurrent use.
type keyspaceEvents struct {
	mu      sync.Mutex
	on      bool
	channel string // that of a key, without the key
	checked time.Time
}

// checkEventsEvery is how often a change of the server's settings is noticed.
const checkEventsEvery = time.Minute

// prefix returns the channel of a key, without the key, if the server notifies.
func (e *keyspaceEvents) prefix(ctx context.Context, conn redisconn.Conn) (channel string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.checked) > checkEventsEvery {
		e.checked = time.Now()
		e.channel, e.on = readKeyspaceEvents(ctx, conn)
	}
	return e.channel, e.on
}

func readKeyspaceEvents(ctx context.Context, conn redisconn.Conn) (channel string, on bool) {
	var replies [2]redisconn.Reply
	conn.Do(ctx, time.Time{}, []redisconn.Cmd{
		redisconn.Command("CONFIG", "GET", "notify-keyspace-events"), redisconn.Command("CLIENT", "INFO"),
	}, replies[:])
	info, _ := replies[1].Value.(string)
	if replies[0].Err != nil || replies[1].Err != nil { // no permission, or an old server
		return "", false
	}
	classes := wire.ParsePairs(replies[0].Value)["notify-keyspace-events"]
	_, rest, found := strings.Cut(info, " db=")
	database, _, _ := strings.Cut(rest, " ")
	return "__keyspace@" + database + "__:", found && strings.Contains(classes, "K") && strings.ContainsAny(classes, "gA")
}
