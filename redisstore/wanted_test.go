package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// commandCalls returns how often the server executed a command, in scripts and alone, since CONFIG
// RESETSTAT.
func commandCalls(t *testing.T, server *redistest.Server, name string) (calls int) {
	t.Helper()
	stats, _ := server.MustCmd(t, "INFO", "commandstats").(string)
	if _, after, found := strings.Cut(stats, "cmdstat_"+name+":calls="); found {
		if _, err := fmt.Sscanf(after, "%d", &calls); err != nil {
			t.Fatal(err)
		}
	}
	return calls
}

// The script that queues the first waiter publishes the notification: the holder receives it half
// a round trip later. Without a holder's request it publishes nothing and reads nothing for it.
func TestCommandsOfWanted(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprint("asks ", asks), func(t *testing.T) {
			server := redistest.Start(t)
			store := open(t, server)
			locks, waiters := dibs.New(store), open(t, server)
			defer locks.Close()
			l, err := locks.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock()
			connected := make(chan struct{}, 1)
			go func() {
				_ = waiters.Watch(t.Context(), "w:1:x", nil, func(driver.Event) { connected <- struct{}{} })
			}()
			<-connected
			if asks {
				// The same request as that of Wanted, which is sent in the background.
				r := driver.WantedRequest{Name: "n", Token: string(l.Token()), Client: clientOf(string(l.Token()))}
				if wanted, err := store.NotifyWanted(t.Context(), r); wanted || err != nil {
					t.Fatalf("wanted %v, %v", wanted, err)
				}
			}
			server.MustCmd(t, "CONFIG", "RESETSTAT")
			for i := range 3 {
				request := driver.AcquireRequest{
					Name: "n", Token: fmt.Sprint("w:1:x:", i), Client: "w:1:x", Seq: uint64(i),
					TTL: 30 * time.Second, Weight: 1, Limit: 1, Queue: true,
				}
				if reply, err := waiters.Acquire(context.Background(), request); reply.Held || err != nil {
					t.Fatalf("acquire: %+v, %v", reply, err)
				}
			}
			want := map[string]int{"publish": 0, "hget": 0, "hdel": 0}
			if asks {
				want = map[string]int{"publish": 1, "hget": 1, "hdel": 1}
			}
			for name, calls := range want {
				if have := commandCalls(t, server, name); have != calls {
					t.Errorf("%d calls of %s, want %d", have, name, calls)
				}
			}
		})
	}
}

// clientOf returns the client in a token.
func clientOf(token string) string { return token[:strings.LastIndex(token, ":")] }
