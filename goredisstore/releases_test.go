package goredisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

// The release of a foreign lock makes the first waiter retry. The notification is a message of
// Redisson, on its channel for this kind of server, or an event of the server itself.
func TestForeignReleaseNotifiesFirstWaiter(t *testing.T) {
	t.Parallel()
	t.Run("Redisson", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
		testForeignRelease(t, goredisstore.New(rdb, goredisstore.Redisson()), rdb, "redisson_lock__channel:{n}", func(ctx context.Context) error {
			return rdb.Publish(ctx, "redisson_lock__channel:{n}", "0").Err()
		})
	})
	t.Run("Redisson on a cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3, 0)
		if c.Nodes()[0].Before7() {
			t.Skip("Redis before 7 has no SPUBLISH")
		}
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
		testForeignRelease(t, goredisstore.New(rdb, goredisstore.Redisson()), rdb, "redisson_lock__channel:{n}", func(ctx context.Context) error {
			return rdb.SPublish(ctx, "redisson_lock__channel:{n}", "0").Err()
		})
	})
	t.Run("keyspace events", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--notify-keyspace-events", "Kgx")
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3})
		testForeignRelease(t, goredisstore.New(rdb, goredisstore.Prefix("")), rdb, "__keyspace@3__:n", func(ctx context.Context) error {
			return rdb.Del(ctx, "n").Err()
		})
	})
}

func testForeignRelease(t *testing.T, store *redisstore.Store, rdb redis.UniversalClient, channel string, release func(context.Context) error) {
	defer rdb.Close()
	const client = "host:1:client"
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan driver.Event, 100)
	var watching sync.WaitGroup
	watching.Go(func() { _ = store.Watch(ctx, client, func(e driver.Event) { events <- e }) })
	defer watching.Wait()
	defer cancel()
	next := func() driver.Event {
		select {
		case e := <-events:
			return e
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
			return driver.Event{}
		}
	}
	if e := next(); e.Kind != driver.EventConnected {
		t.Fatalf("event %+v", e)
	}
	hold(t, rdb, channel)
	request := driver.AcquireRequest{
		Name: "n", Token: client + ":1", Client: client, TTL: time.Minute, Weight: 1, Limit: 1, Queue: true,
		Until: time.Now().Add(10 * time.Second),
	}
	if reply, err := store.Acquire(ctx, request); err != nil || reply.Held || reply.Poll <= 0 {
		t.Fatalf("acquire: %+v, %v", reply, err)
	}
	// The first event is the confirmation of the subscription.
	for range 2 {
		if e := next(); e.Kind != driver.EventRetry || e.Token != request.Token {
			t.Fatalf("event %+v, want that the waiter retries", e)
		}
		if err := release(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// hold makes a foreign client hold the name n.
func hold(t *testing.T, rdb redis.UniversalClient, channel string) {
	t.Helper()
	var err error
	if channel[0] == '_' {
		err = rdb.Set(t.Context(), "n", "bab04ed2e66211ef", time.Minute).Err()
	} else if err = rdb.HSet(t.Context(), "n", "7fb2518c-216e-4694-a8c4-fce4a1114ba0:40", 1).Err(); err == nil {
		err = rdb.PExpire(t.Context(), "n", time.Minute).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A holder that asks whether clients of Redisson wait does not count itself: it may still listen
// on their channel, as it did while it waited.
func TestWantedIgnoresOwnListening(t *testing.T) {
	t.Parallel()
	const client, channel = "host:1:client", "redisson_lock__channel:{n}"
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	store := goredisstore.New(rdb, goredisstore.Redisson())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	events := make(chan driver.Event, 100)
	var watching sync.WaitGroup
	watching.Go(func() { _ = store.Watch(ctx, client, func(e driver.Event) { events <- e }) })
	defer watching.Wait()
	defer cancel()
	<-events // connected
	hold(t, rdb, channel)
	request := driver.AcquireRequest{
		Name: "n", Token: client + ":1", Client: client, TTL: time.Minute, Weight: 1, Limit: 1, Queue: true,
		Until: time.Now().Add(10 * time.Second),
	}
	if reply, err := store.Acquire(ctx, request); err != nil || reply.Held {
		t.Fatalf("acquire: %+v, %v", reply, err)
	}
	<-events // it listens
	if err := rdb.Del(ctx, "n").Err(); err != nil {
		t.Fatal(err)
	}
	if reply, err := store.Acquire(ctx, request); err != nil || !reply.Held {
		t.Fatalf("acquire: %+v, %v", reply, err)
	}
	wantWanted := func(want bool) {
		t.Helper()
		wanted, err := store.NotifyWanted(ctx, driver.WantedRequest{Name: "n", Token: request.Token, Client: client})
		if wanted != want || err != nil {
			t.Errorf("wanted %v, %v, want %v", wanted, err, want)
		}
	}
	if n, err := rdb.PubSubNumSub(ctx, channel).Result(); n[channel] != 1 || err != nil {
		t.Fatalf("%v subscribers, %v, want the store", n, err)
	}
	wantWanted(false)
	theirs := rdb.Subscribe(ctx, channel)
	defer theirs.Close()
	if _, err := theirs.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	wantWanted(true)
}
