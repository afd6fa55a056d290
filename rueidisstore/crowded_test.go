package rueidisstore_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

func TestMain(m *testing.M) { childtest.Main(m, map[string]childtest.Role{"lock": lock}) }

// lock locks and unlocks in many goroutines, with short time limits, until the process
// ends. It prints a line for each second in which a lock was acquired.
func lock(out io.Writer, args []string) error {
	const goroutines = 8
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: args, DisableCache: true})
	if err != nil {
		return err
	}
	locks := dibs.New(rueidisstore.New(client), dibs.Timeout(20*time.Millisecond))
	var acquired atomic.Int64
	for i := range goroutines {
		go func() {
			for {
				if l, err := locks.Mutex(fmt.Sprint(i)).TryLock(context.Background()); err == nil {
					acquired.Add(1)
					_ = l.Unlock()
				}
			}
		}()
	}
	for range time.Tick(time.Second) {
		if acquired.Swap(0) > 0 {
			fmt.Fprintln(out, "acquired")
		}
	}
	return nil
}

// rueidis ends the process if a context ends at the wrong moment while the server has too many
// clients: see timedContext.
func TestProcessSurvivesAServerWithMaxClients(t *testing.T) {
	t.Parallel()
	const period = 8 * time.Second
	server := redistest.Start(t)
	admin := redistest.Dial(server.Addr())
	t.Cleanup(admin.Close)
	command := func(words ...string) {
		t.Helper()
		if _, err := admin.Call(t.Context(), words...); err != nil {
			t.Fatal(err)
		}
	}
	child := childtest.Start(t, "lock", server.Addr())
	child.Line()
	command("CONFIG", "SET", "maxclients", "1")
	for _, kind := range []string{"normal", "pubsub"} {
		command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
	}
	time.Sleep(period) // the process should survive this time
	command("CONFIG", "SET", "maxclients", "10000")
	for range 1 + len(child.Lines()) { // the earlier connections, and a new one
		child.Line()
	}
}
