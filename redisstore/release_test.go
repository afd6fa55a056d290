package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A stalledServer replies with first at once, until it stalls: then the first request gets no
// reply, and the second request gets second.
type stalledServer struct {
	redisconn.Conn
	first   any
	second  any
	stalled bool
	calls   int // since then
}

func (c *stalledServer) Traits() redisconn.Traits { return redisconn.Traits{KeepsUntil: true} }

func (c *stalledServer) Do(_ context.Context, until time.Time, _ []redisconn.Cmd, replies []redisconn.Reply) {
	if !c.stalled {
		replies[0] = redisconn.Reply{Value: c.first}
		return
	}
	if c.calls++; c.calls == 1 {
		time.Sleep(time.Until(until))
		replies[0] = redisconn.Reply{Err: context.DeadlineExceeded}
		return
	}
	replies[0] = redisconn.Reply{Value: c.second}
	if refusal, ok := c.second.(redisconn.ServerError); ok {
		replies[0] = redisconn.Reply{Err: refusal}
	}
}

// A release or a revocation should be sent twice if its first try has no reply in time. For a token
// without further use, the first try needs no time limit. The first try may have ended the lease.
// Then the second finds the name free, or is refused, and the outcome should be unknown.
func TestEndOfALeaseIsRetried(t *testing.T) {
	release := func(s *Store) (bool, error) {
		return s.Release(context.Background(), driver.ReleaseRequest{Name: "n", Token: "token", Until: time.Now().Add(time.Minute), LastUse: true})
	}
	revoke := func(s *Store) (bool, error) {
		return s.Revoke(context.Background(), driver.RevokeRequest{Name: "n", Fence: 7, Reason: "maintenance"})
	}
	now := int64(1_700_000_000_000_000) // the server's time
	for verb, of := range map[string]struct {
		end     func(*Store) (bool, error)
		yes, no any
	}{
		"release": {release, int64(1), int64(0)},
		"revoke":  {revoke, []any{now, int64(1)}, []any{now, int64(0)}},
	} {
		for _, test := range []struct {
			second any
			ended  bool
			err    string
		}{
			{of.yes, true, ""},
			{of.no, false, "outcome unknown"},
			{redisconn.ServerError("OOM command not allowed"), false, "outcome unknown"},
		} {
			t.Run(fmt.Sprint(verb, test.second), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &stalledServer{first: of.yes, second: test.second}
					s := New(c)
					for range 100 { // only a fast server's requests are sent again
						if _, err := of.end(s); err != nil {
							t.Fatal(err)
						}
					}
					c.stalled = true
					ended, err := of.end(s)
					if c.calls != 2 || ended != test.ended {
						t.Errorf("%d calls, ended %v; want 2, %v", c.calls, ended, test.ended)
					}
					var unavailable *driver.UnavailableError
					if test.err == "" && err != nil || test.err != "" && (!errors.As(err, &unavailable) || unavailable.Refused || !strings.Contains(err.Error(), test.err)) {
						t.Errorf("%v, want %q", err, test.err)
					}
				})
			})
		}
	}
}
