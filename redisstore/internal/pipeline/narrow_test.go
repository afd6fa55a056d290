package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A narrowConn is a server behind a narrow link. All its names are free.
type narrowConn struct {
	redisconn.Conn
	rate  int // bytes a second to the server
	mu    sync.Mutex
	free  time.Time // when all bytes so far will have passed
	known map[string]bool
}

func (c *narrowConn) Do(_ context.Context, _ time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	const distance, limit = 10 * time.Millisecond, time.Second
	size := 0
	for i := range cmds {
		for _, word := range cmds[i].Words() {
			size += len(fmt.Sprintf("$%d\r\n%s\r\n", len(word), word))
		}
	}
	start := time.Now()
	c.mu.Lock()
	if c.free.Before(start) {
		c.free = start
	}
	c.free = c.free.Add(time.Duration(size) * time.Second / time.Duration(c.rate))
	passed := c.free
	c.mu.Unlock()
	longest := limit
	if redisconn.Loads(cmds) {
		longest = redisconn.LoadTimeout
	}
	if passed.Sub(start) > longest {
		time.Sleep(longest)
		for i := range replies {
			replies[i].Err = context.DeadlineExceeded
		}
		return
	}
	time.Sleep(passed.Sub(start) + distance)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, cmd := range cmds {
		replies[i].Value, replies[i].Err = c.call(cmd, time.Now().UnixMicro())
	}
}

func (c *narrowConn) call(cmd redisconn.Cmd, now int64) (any, error) {
	if !cmd.Whole && !c.known[cmd.Script.Hash] {
		return nil, errUnknownScript
	}
	c.known[cmd.Script.Hash] = true
	isLate := func(until string) bool {
		n := int64(0)
		_, _ = fmt.Sscan(until, &n)
		return until != "" && n < now
	}
	switch {
	case cmd.Script == wire.Plain().Coalesced && isLate(cmd.Args[0]):
		return []any{now, strings.Repeat("0", len(cmd.Args[1]))}, nil
	case cmd.Script == wire.Plain().Coalesced:
		return []any{now, strings.Repeat("1", len(cmd.Args[1]))}, nil
	case cmd.Script == wire.Plain().Acquire && isLate(cmd.Args[3]):
		return []any{now, int64(0)}, nil
	case cmd.Script == wire.Plain().Acquire:
		return now, nil
	}
	return int64(1), nil
}

// On a narrow link, goroutines that lock free names reach half the rate at which the link could
// carry SET NX locks. At 3 kB/s few requests share a call, so a quarter is enough. If the server
// does not have the scripts at first, a third is enough: two workers may send the same text.
func TestNarrowLinkIsUsed(t *testing.T) {
	for _, c := range []struct {
		rate, goroutines int
		loaded           bool
		part             int
	}{{20_000, 50, true, 2}, {100_000, 200, true, 2}, {20_000, 50, false, 3}, {3_000, 5, true, 4}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const within, timeout = 15 * time.Second, time.Second
				conn := &narrowConn{rate: c.rate, known: make(map[string]bool)}
				if c.loaded {
					for _, s := range []*redisconn.Script{wire.Plain().Acquire, wire.Plain().Release, wire.Plain().Coalesced} {
						conn.known[s.Hash] = true
					}
				}
				p := New(Config{Conn: conn}).Of(wire.Route{})
				f := wire.Format{Prefix: "lock:"}
				const client = "web-7:21134:q3Zkq3Zkq3Zkq3Zk"
				entries, failed := 0, 0
				var pool RequestPool
				do := func(encode func(r *Request)) redisconn.Reply {
					r := pool.Get()
					encode(r)
					reply, _, reusable := p.Do(t.Context(), r, time.Now().Add(timeout))
					if reusable {
						pool.Put(r)
					}
					return reply
				}
				var mu sync.Mutex
				var group sync.WaitGroup
				start := time.Now()
				for i := range c.goroutines {
					group.Go(func() {
						for n := 0; time.Since(start) < within; n++ {
							name, token := fmt.Sprintf("name:%d", i), fmt.Sprintf("%s:m-aarqyany2ctghzd2ppmn%04d", client, n)
							reply := do(func(r *Request) {
								f.Acquire(&r.Request, driver.AcquireRequest{Name: name, Token: token, Client: client, Seq: uint64(n), TTL: 30 * time.Second, Weight: 1, Limit: 1, Queue: true}, false)
							})
							held, ok := reply.Value.(int64)
							if ok = ok && held > 1 && reply.Err == nil; ok {
								reply = do(func(r *Request) {
									f.Release(&r.Request, driver.ReleaseRequest{Name: name, Token: token, Fence: 1_700_000_000_000_001, LastUse: true}, "", false)
								})
								ok = reply.Err == nil
							}
							mu.Lock()
							if ok {
								entries++
							} else {
								failed++
							}
							mu.Unlock()
							if reply.Err != nil {
								time.Sleep(time.Millisecond)
							}
						}
					})
				}
				group.Wait()
				const plain = 152 // bytes for SET and for a script that compares and deletes
				most := int(within/time.Second) * c.rate / plain
				t.Logf("FIGURE %d entries, %d failed; at most %d with SET NX", entries, failed, most)
				if entries*c.part < most {
					t.Errorf("%d entries, want 1/%d of %d", entries, c.part, most)
				}
			})
		})
	}
}
