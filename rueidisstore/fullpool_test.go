package rueidisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

// crowded returns a client with a single connection for blocking commands.
func crowded(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, BlockingPoolSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// An error says that the program's other work uses all connections, not that the server does not
// reply.
func TestFullPoolIsNamed(t *testing.T) {
	t.Parallel()
	const pool = "no connection was free in the pool of the client (BlockingPoolSize)"
	server := redistest.Start(t)
	client := crowded(t, server.Addr())
	block(t, server, client)
	locks := dibs.New(rueidisstore.New(client))
	t.Cleanup(func() { locks.Close() })
	if _, err := locks.Mutex("m").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), pool) {
		t.Errorf("got %v, want an error with %q", err, pool)
	}
}

// block takes a connection from the pool, by a command that waits on the server.
func block(t *testing.T, server *redistest.Server, client rueidis.Client) {
	t.Helper()
	var done sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	done.Go(func() { _ = client.Do(ctx, client.B().Blpop().Key("m").Timeout(0).Build()) }) // until it is cancelled
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	admin := redistest.Dial(server.Addr())
	t.Cleanup(admin.Close)
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // polls
		info, err := admin.Call(t.Context(), "INFO", "clients")
		if err != nil || time.Now().After(end) {
			t.Fatal("nothing is blocked", err)
		}
		if text, _ := info.(string); strings.Contains(text, "blocked_clients:1") {
			return
		}
	}
}

// The error for a silent server should not name a pool filled with dibs' own requests.
func TestSilentServerIsNoFullPool(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	store := rueidisstore.New(crowded(t, proxy.Addr()))
	drill.SilentServerIsNoFullPool(t, store, proxy)
}
