package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
)

// TestNothingIsLeft lets 128 waiters of three clients lock a name, and some of them give up.
// Afterwards no watch, entry or session is left. With DIBS_LONG=1 it takes longer, and also counts
// goroutines.
func TestNothingIsLeft(t *testing.T) {
	length, long := 3*time.Second, isLong()
	if long {
		length = time.Minute
	} else {
		t.Parallel()
	}
	s := zktest.NewServer(t, longestSession)
	observer := connect(t, s)
	_, err := children(observer, "/locks") // so its session exists
	must(t, err)
	goroutines, sessions := runtime.NumGoroutine(), figure(t, s, "zk_global_sessions")
	contend(t, s, length)
	eventually(t, 30*time.Second, func() error {
		if now := figure(t, s, "zk_watch_count"); now > 0 {
			return fmt.Errorf("%d watches", now)
		}
		if now := figure(t, s, "zk_global_sessions"); now > sessions {
			return fmt.Errorf("%d sessions, %d before", now, sessions)
		}
		if now := figure(t, s, "zk_ephemerals_count"); now > 0 {
			return fmt.Errorf("%d ephemeral znodes", now)
		}
		if now := runtime.NumGoroutine(); long && now > goroutines {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines, %d before:\n%s", now, goroutines, stacks[:runtime.Stack(stacks, true)])
		}
		return leftEntries(observer, "/locks")
	})
}

// figure returns a figure of a server.
func figure(t *testing.T, s *zktest.Server, name string) int {
	t.Helper()
	text, err := s.Command("mntr")
	must(t, err)
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+"\t"); found {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			must(t, err)
			return n
		}
	}
	t.Fatalf("no figure %s in %s", name, text)
	return 0
}

// contend lets three clients contend for a name, and closes them.
func contend(t *testing.T, s *zktest.Server, length time.Duration) {
	const waiters = 128
	var acquired, gaveUp, holders atomic.Int64
	var clients []*dibs.Client
	for range 3 {
		store := zkstore.New(endpoints(s))
		defer func() { must(t, store.Close()) }()
		clients = append(clients, dibs.New(store, dibs.TTL(3*time.Second), dibs.Timeout(10*time.Second)))
	}
	end := time.Now().Add(length)
	var group sync.WaitGroup
	for w := range waiters {
		group.Go(func() {
			m, limit := clients[w%len(clients)].Mutex("n"), 10*time.Second
			if w%8 == 0 {
				limit = time.Second / 4 // shorter than the queue
			}
			for time.Now().Before(end) {
				l, err := m.Lock(context.Background(), dibs.Wait(limit))
				switch {
				case errors.Is(err, dibs.ErrBusy):
					gaveUp.Add(1)
					continue
				case err != nil:
					t.Error(err)
					return
				}
				if holders.Add(1) > 1 {
					t.Error("two holders")
				}
				acquired.Add(1)
				holders.Add(-1)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	t.Logf("FIGURE %d acquisitions; %d gave up", acquired.Load(), gaveUp.Load())
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
