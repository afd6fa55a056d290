package natskv_test

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/examples/natskv"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/kvstore"
	"github.com/dibslock/dibs/kvstore/buckettest"
	"github.com/dibslock/dibs/storetest"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startServer starts a NATS server in this process, and returns its URL.
func startServer(t testing.TB) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// connect returns a separate connection, like another process's.
func connect(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func open(t testing.TB, url, bucket string) *kvstore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := natskv.New(ctx, connect(t, url), bucket)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openBucket(t testing.TB, url, name string) kvstore.Bucket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := natskv.NewBucket(ctx, connect(t, url), name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bucketOf returns a bucket's name for a test.
func bucketOf(t testing.TB) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" ,/#", r) {
			return '_'
		}
		return r
	}, t.Name())
}

func TestBucket(t *testing.T) {
	url := startServer(t)
	buckettest.Run(t, func(t *testing.T) kvstore.Bucket { return openBucket(t, url, bucketOf(t)) })
}

func TestStore(t *testing.T) {
	url := startServer(t)
	storetest.Run(t, func(t *testing.T) driver.Store { return open(t, url, bucketOf(t)) })
}

func TestClocks(t *testing.T) {
	url := startServer(t)
	storetest.RunClocks(t, func(t *testing.T) driver.Store { return open(t, url, bucketOf(t)) })
}

// An existing bucket keeps its settings, and is used with them.
func TestExistingBucket(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	js := connect(t, url)
	for _, config := range []jetstream.KeyValueConfig{
		{Bucket: "plain", Description: "ours", History: 5, MaxBytes: 1 << 20},
		{Bucket: "markers", Storage: jetstream.MemoryStorage, LimitMarkerTTL: time.Hour},
	} {
		kv, err := js.CreateKeyValue(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		before := settings(t, kv)
		locks := dibs.New(open(t, url, config.Bucket))
		if err := locks.Mutex("n").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		if after := settings(t, kv); !reflect.DeepEqual(after, before) {
			t.Errorf("settings %+v, before %+v", after, before)
		}
		if err := natskv.WriteAndDelete(t.Context(), js, config.Bucket); err != nil {
			t.Error(err)
		}
	}
}

func settings(t *testing.T, kv jetstream.KeyValue) jetstream.KeyValueConfig {
	t.Helper()
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status.Config()
}

// A bucket that lets values expire would let locks expire.
func TestBucketWithTTL(t *testing.T) {
	t.Parallel()
	js := connect(t, startServer(t))
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ttl", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := natskv.New(t.Context(), js, "ttl"); err == nil || !strings.Contains(err.Error(), `the bucket "ttl" deletes values`) {
		t.Error(err)
	}
}

// Many clients that begin at the same time create a single bucket.
func TestCreatedTogether(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	var running sync.WaitGroup
	for range 8 {
		js := connect(t, url)
		running.Go(func() {
			if _, err := natskv.New(t.Context(), js, "new"); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
}

// Many clients run random operations in real time, and all results are consistent.
func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, open(t, startServer(t), "locks"), 1, 300)
}

// A program excludes others while it holds a lock.
func Example() {
	dir, err := os.MkdirTemp("", "natskv")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(time.Minute) {
		return
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	store, err := natskv.New(ctx, js, "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := dibs.New(store)
	defer locks.Close()
	err = locks.Mutex("order:42").Do(ctx, func(ctx context.Context) error {
		fmt.Println("held:", carried.Fence(ctx) > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// held: true
	// <nil>
}
