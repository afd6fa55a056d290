package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// now is a server's time in µs.
const now int64 = 1_700_000_000_000_000

// A grant's age should be the time since it was sent, by the server's clock; it should be zero if
// this is unknown.
func TestMessageAge(t *testing.T) {
	s := New(nil)
	begin := time.Now()
	s.slots.Of(wire.Route{}).Learn(redisconn.Reply{Value: now}, begin, begin)
	time.Sleep(time.Millisecond)
	sent := now - time.Second.Microseconds()
	e, ok := s.event(fmt.Sprintf("7 5 %d tok", sent))
	if most := time.Since(begin) + time.Second; !ok || e.Age <= time.Second || e.Age > most {
		t.Errorf("%+v, %v: want an age of 1s to %v", e, ok, most)
	}
	e, ok = s.event(fmt.Sprintf("7 5 %d tok", now+time.Hour.Microseconds()))
	if !ok || e.Age != 0 {
		t.Errorf("%+v, %v: sent in the future, want no age", e, ok)
	}
}

// A fakeServer accepts a subscription, and sends a sequence of replies, then repeats the last
// reply.
type fakeServer struct {
	redisconn.Conn
	replies  []redisconn.Reply
	commands atomic.Int64
}

func (c *fakeServer) Traits() redisconn.Traits { return redisconn.Traits{Cluster: true} }

func (c *fakeServer) Do(_ context.Context, _ time.Time, _ []redisconn.Cmd, replies []redisconn.Reply) {
	n := c.commands.Add(1)
	replies[0] = c.replies[min(int(n), len(c.replies))-1]
}

func (c *fakeServer) Subscribe(ctx context.Context, _ string, _ func() bool, on func(string)) error {
	on("")
	<-ctx.Done()
	return ctx.Err()
}

// A server that cannot return the epoch should not be polled further.
func TestEpochIsPolled(t *testing.T) {
	const span = 10 * time.Second
	for _, c := range []struct {
		name     string
		reply    redisconn.Reply
		min, max int64 // commands in that span
	}{
		{"a cluster", redisconn.Reply{Value: "cluster_current_epoch:6\r\n"}, 49, 51},
		{"no reply", redisconn.Reply{Err: errors.New("refused")}, 15, 40},
		{"no permission", redisconn.Reply{Err: redisconn.ServerError("NOPERM no permissions")}, 1, 1},
		{"another kind of server", redisconn.Reply{Err: redisconn.ServerError("ERR unknown command 'CLUSTER', with args beginning with: 'INFO'")}, 1, 1},
		{"no cluster", redisconn.Reply{Err: redisconn.ServerError("ERR This instance has cluster support disabled")}, 1, 1},
		{"refused for now", redisconn.Reply{Err: redisconn.ServerError("ERR max number of clients reached")}, 15, 40},
		{"no epoch", redisconn.Reply{Value: "cluster_state:ok\r\n"}, 1, 1},
		{"nonsense", redisconn.Reply{Value: int64(1)}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &fakeServer{replies: []redisconn.Reply{c.reply}}
				ctx, cancel := context.WithTimeout(t.Context(), span)
				defer cancel()
				changed := 0
				err := New(conn).Watch(ctx, "host:1:test", nil, func(e driver.Event) {
					if e.Kind == driver.EventFailover {
						changed++
					}
				})
				if !errors.Is(err, context.DeadlineExceeded) || changed > 0 {
					t.Errorf("error %v, and %d elections", err, changed)
				}
				if n := conn.commands.Load(); n < c.min || n > c.max {
					t.Errorf("%d commands in %v, want %d to %d", n, span, c.min, c.max)
				}
			})
		})
	}
}

// An election is detected after the server refused CLUSTER INFO for a temporary reason.
func TestEpochAfterRefusal(t *testing.T) {
	epoch := func(n string) redisconn.Reply {
		return redisconn.Reply{Value: "cluster_state:ok\r\ncluster_current_epoch:" + n + "\r\n"}
	}
	for _, refusal := range []error{
		redisconn.ServerError("ERR max number of clients reached"),
		redisconn.ServerError("NOAUTH Authentication required."),
		redisconn.ServerError("WRONGPASS invalid username-password pair or user is disabled."),
		redisconn.ServerError("MISCONF Redis is configured to save RDB snapshots"),
		redisconn.ServerError("LOADING Redis is loading the dataset in memory"),
		errors.New("connection reset"),
	} {
		for _, times := range []int{1, 5} {
			t.Run(fmt.Sprint(times, " times ", refusal), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					conn := &fakeServer{replies: []redisconn.Reply{epoch("6")}}
					conn.replies = append(append(conn.replies, slices.Repeat([]redisconn.Reply{{Err: refusal}}, times)...), epoch("7"))
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					var changed time.Duration
					start := time.Now()
					_ = New(conn).Watch(ctx, "host:1:test", nil, func(e driver.Event) {
						if e.Kind == driver.EventFailover && changed == 0 {
							changed = time.Since(start)
						}
					})
					if most := time.Duration(times+1) * 500 * time.Millisecond; changed == 0 || changed > most {
						t.Errorf("noticed after %v, want within %v", changed, most)
					}
				})
			})
		}
	}
}
