package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/zkstore"
)

// The server deletes the znode of a name while nobody holds it. So it can be gone at any time.
func TestNamesAreGone(t *testing.T) {
	t.Parallel()
	lasts := 5 * time.Second
	if isLong() {
		lasts = time.Minute
	}
	const names = 5
	server, prefix := shortSessionServer(t), newPrefix()
	conn := connect(t, server)
	var holders [names]atomic.Int64
	var fences [names]atomic.Uint64
	var locks, gone atomic.Int64
	var loops sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	for range 3 {
		s := open(t, endpoints(server), zkstore.Prefix(prefix))
		c := dibs.New(s, dibs.TTL(drillTTL), dibs.Timeout(patience))
		t.Cleanup(func() { _ = c.Close() })
		for range 3 {
			loops.Go(func() {
				for ctx.Err() == nil {
					i := rand.IntN(names)
					name := fmt.Sprint("n", i)
					l, err := c.Mutex(name).Lock(ctx)
					if ctx.Err() != nil {
						if err == nil {
							_ = l.Unlock()
						}
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if holders[i].Add(1) > 1 {
						t.Errorf("two hold %s", name)
					}
					if last := fences[i].Swap(l.Fence()); l.Fence() <= last {
						t.Errorf("%s: fence %d after %d", name, l.Fence(), last)
					}
					holders[i].Add(-1)
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
					locks.Add(1)
					time.Sleep(rand.N(300 * time.Millisecond))
				}
			})
		}
	}
	for ctx.Err() == nil { // the server's own interval is 300 ms
		if err := conn.Delete(path.Join(prefix, fmt.Sprint("n", rand.IntN(names))), -1); err == nil {
			gone.Add(1)
		}
	}
	loops.Wait()
	t.Logf("FIGURE %d locks, %d names deleted", locks.Load(), gone.Load())
	if gone.Load() == 0 {
		t.Error("no name was deleted")
	}
	eventually(t, 20*time.Second, func() error { // nothing of a name is left in the end
		entries, err := children(conn, prefix)
		for _, name := range entries {
			if !strings.HasPrefix(name, "%") {
				err = errors.Join(err, fmt.Errorf("%s is left", name))
			}
		}
		return err
	})
}

// A waiter that finds the znode of its name deleted with all entries should queue again.
func TestPrefixIsDeleted(t *testing.T) {
	t.Parallel()
	server, prefix := sharedServer(t), newPrefix()
	conn := connect(t, server)
	locks := dibs.New(open(t, endpoints(server), zkstore.Prefix(prefix)), dibs.TTL(drillTTL), dibs.Timeout(patience))
	t.Cleanup(func() { _ = locks.Close() })
	first := lock(t, locks, "n")
	fence := first.Fence()
	unlock(t, first)
	must(t, deleteAll(conn, prefix))
	again := lock(t, locks, "n")
	if again.Fence() <= fence {
		t.Errorf("fence %d after %d", again.Fence(), fence)
	}
	unlock(t, again)
}
