package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A fakeMaster is a server that returns a number of subscribers, after a delay.
type fakeMaster struct {
	redisconn.Conn
	count    func(at time.Duration) (any, time.Duration, error)
	begun    time.Time
	commands atomic.Int64
	made     atomic.Int64 // subscriptions
}

func (c *fakeMaster) Traits() redisconn.Traits { return redisconn.Traits{} }

func (c *fakeMaster) Do(_ context.Context, _ time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.commands.Add(1)
	n, after, err := c.count(time.Since(c.begun))
	time.Sleep(after)
	replies[0] = redisconn.Reply{Value: []any{cmds[0].Args[2], n}, Err: err}
}

func (c *fakeMaster) Subscribe(ctx context.Context, _ string, _ func() bool, on func(string)) error {
	c.made.Add(1)
	on("")
	<-ctx.Done()
	return context.Cause(ctx)
}

// A client should subscribe again only if its subscription may not be on the server for its
// requests.
func TestMasterWatch(t *testing.T) {
	const span = time.Minute
	healthy := func(time.Duration) (any, time.Duration, error) { return int64(1), time.Millisecond, nil }
	during := func(from, to, at time.Duration) bool { return from <= at && at < to }
	for _, c := range []struct {
		name     string
		count    func(at time.Duration) (any, time.Duration, error)
		made     int64
		min, max int64 // commands in that span
	}{
		{"healthy", healthy, 1, 55, 61},
		{"left behind", func(at time.Duration) (any, time.Duration, error) {
			if during(10*time.Second, 10100*time.Millisecond, at) {
				return int64(0), 0, nil
			}
			return healthy(at)
		}, 2, 55, 75},
		{"cannot count", func(time.Duration) (any, time.Duration, error) { return int64(0), 0, nil }, 4, 55, 90},
		{"frozen for 3 s, then another master", func(at time.Duration) (any, time.Duration, error) {
			if during(10*time.Second, 13*time.Second, at) {
				return int64(1), 13*time.Second - at, nil
			}
			return healthy(at)
		}, 3, 55, 90},
		{"no connection for 3 s", func(at time.Duration) (any, time.Duration, error) {
			if during(10*time.Second, 13*time.Second, at) {
				return nil, 0, errors.New("refused")
			}
			return healthy(at)
		}, 3, 55, 120},
		{"a hiccup", func(at time.Duration) (any, time.Duration, error) {
			if during(10*time.Second, 11*time.Second, at) {
				return int64(1), 300 * time.Millisecond, nil
			}
			return healthy(at)
		}, 1, 55, 61},
		{"always slow", func(time.Duration) (any, time.Duration, error) { return int64(1), 700 * time.Millisecond, nil }, 13, 50, 300},
		{"no permission", func(time.Duration) (any, time.Duration, error) {
			return nil, 0, redisconn.ServerError("NOPERM no permissions")
		}, 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &fakeMaster{count: c.count, begun: time.Now()}
				ctx, cancel := context.WithTimeout(t.Context(), span)
				defer cancel()
				var up, down int64
				err := New(conn).Watch(ctx, "host:1:test", nil, func(e driver.Event) {
					switch e.Kind {
					case driver.EventConnected:
						up++
					case driver.EventDisconnected:
						down++
					}
				})
				synctest.Wait()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				if n := conn.made.Load(); n > c.made || n < min(c.made, 4) || up != n || down != n-1 {
					t.Errorf("%d subscriptions, %d times up, %d times down: want %d", n, up, down, c.made)
				}
				if n := conn.commands.Load(); n < c.min || n > c.max {
					t.Errorf("%d commands in %v, want %d to %d", n, span, c.min, c.max)
				}
				time.Sleep(time.Second) // commands in flight end
			})
		})
	}
}
