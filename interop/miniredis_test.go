package interop

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/storetest"
	"github.com/redis/go-redis/v9"
)

// miniredis passes the conformance suite if its clock is moved, as docs/testing.md says.
func TestMiniredis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) driver.Store {
		server := miniredis.RunT(t)
		ended := make(chan struct{})
		t.Cleanup(func() { close(ended) })
		go moveClock(server, ended)
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { rdb.Close() })
		return goredisstore.New(rdb)
	})
}

// moveClock expires keys in real time.
func moveClock(server *miniredis.Miniredis, ended <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
			now := time.Now()
			server.FastForward(now.Sub(last))
			last = now
		case <-ended:
			return
		}
	}
}
