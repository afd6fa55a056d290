package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
)

// A teller is a server to which one may listen, and that gives the same reply to all
// that it is asked.
type teller struct {
	Conn
	reply Reply
	asked atomic.Int64
}

func (c *teller) Do(_ context.Context, _ []Cmd, replies []Reply) {
	c.asked.Add(1)
	replies[0] = c.reply
}

func (c *teller) Subscribe(ctx context.Context, _ string, on func(string)) error {
	on("")
	<-ctx.Done()
	return ctx.Err()
}

// Who cannot tell how many elections there have been is not asked again and again.
func TestElectionsAreAskedFor(t *testing.T) {
	const span = 10 * time.Second
	for _, c := range []struct {
		name     string
		reply    Reply
		min, max int64 // times asked in that span
	}{
		{"a cluster", Reply{Value: "cluster_current_epoch:6\r\n"}, 49, 51},
		{"nobody answers", Reply{Err: errors.New("refused")}, 400, 500},
		{"may not ask", Reply{Err: ServerError("NOPERM no permissions")}, 1, 1},
		{"no epoch", Reply{Value: "cluster_state:ok\r\n"}, 1, 1},
		{"nonsense", Reply{Value: int64(1)}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &teller{reply: c.reply}
				ctx, cancel := context.WithTimeout(t.Context(), span)
				defer cancel()
				changed := 0
				err := New(conn, Sharded()).Watch(ctx, "host:1:test", func(e dibs.Event) {
					if e.Kind == dibs.Changed {
						changed++
					}
				})
				if !errors.Is(err, context.DeadlineExceeded) || changed > 0 {
					t.Errorf("error %v, and %d elections", err, changed)
				}
				if n := conn.asked.Load(); n < c.min || n > c.max {
					t.Errorf("asked %d times in %v, want %d to %d", n, span, c.min, c.max)
				}
			})
		})
	}
}
