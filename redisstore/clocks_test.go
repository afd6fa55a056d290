package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// fakeCluster is a cluster whose servers have test clocks. It grants every request unless it is
// void.
type fakeCluster struct {
	redisconn.Conn
	mu    sync.Mutex
	ahead map[string]time.Duration // by lock key
	fails error                    // the next request, once
	after map[string]time.Duration // by lock key: for how long the last request was not void
}

func (c *fakeCluster) Traits() redisconn.Traits { return redisconn.Traits{Cluster: true} }

func (c *fakeCluster) Do(_ context.Context, _ time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, cmd := range cmds {
		now := time.Now().Add(c.ahead[cmd.Keys[0]]).UnixMicro()
		var until int64
		_, _ = fmt.Sscan(cmd.Args[3], &until)
		if c.fails != nil {
			replies[i].Err, c.fails = c.fails, nil
		} else if until < now {
			replies[i].Value = []any{now, int64(0)}
			continue
		} else {
			replies[i].Value = now
		}
		c.after[cmd.Keys[0]] = time.Duration(until-now) * time.Microsecond
	}
}

// An acquire must never become void more than 50 ms later than its caller says. This holds
// whatever the clocks on other servers, or on the server's predecessor. The exception is the
// first request to a server with a different clock.
func TestClocksOfSeveralServers(t *testing.T) {
	const left, slack = time.Second, 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeCluster{ahead: make(map[string]time.Duration), after: make(map[string]time.Duration)}
		s := New(conn, Prefix(""))
		acquire := func(name string, ahead time.Duration) time.Duration {
			t.Helper()
			conn.ahead[name] = ahead
			request := driver.AcquireRequest{Name: name, Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Until: time.Now().Add(left)}
			if _, err := s.Acquire(t.Context(), request); err != nil && !errors.Is(err, dibs.ErrUnavailable) {
				t.Fatal(err)
			}
			return conn.after[name]
		}
		within := func(what string, have time.Duration) {
			t.Helper()
			if have > left+slack || have < left-slack {
				t.Errorf("%s: void after %v, want %v", what, have, left)
			}
		}
		within("the first", acquire("a", time.Hour))
		within("the same", acquire("a", time.Hour))
		for i := range 3 {
			within("a similar one", acquire(fmt.Sprint("like", i), time.Hour-20*time.Millisecond*time.Duration(i)))
		}
		if after := acquire("odd", 0); after < time.Hour {
			t.Errorf("first request: void after %v", after) // the exception above
		}
		within("the different one again", acquire("odd", 0))
		for i := range 10 {
			within("another one", acquire(fmt.Sprint("other", i), time.Duration(i%3-1)*time.Hour))
		}
		for _, failure := range []error{
			errors.New("connection reset"), redisconn.ServerError("MOVED 1 host:1"), redisconn.ServerError("READONLY You can't write against a read only replica."),
			redisconn.ServerError("ERR CLUSTERDOWN The cluster is down"), redisconn.ServerError("LOADING Redis is loading the dataset in memory"),
		} {
			conn.fails = failure
			acquire("a", time.Hour)
			within(fmt.Sprint("its successor, after ", failure), acquire("a", -time.Hour))
			within("and again", acquire("a", -time.Hour))
		}
		s.slots.Reset()
		within("another server after an election", acquire("a", time.Minute))
	})
}
