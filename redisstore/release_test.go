package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A stalledServer replies at once, until it stalls: then the first request gets no reply,
// and the second one gets second.
type stalledServer struct {
	redisconn.Conn
	second  any
	stalled bool
	calls   int // since then
}

func (c *stalledServer) Do(_ context.Context, until time.Time, _ []redisconn.Cmd, replies []redisconn.Reply) {
	if !c.stalled {
		replies[0] = redisconn.Reply{Value: int64(1)}
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

// A release is sent twice if its first try has no reply in time. A token that nobody uses
// again needs no time after which the first try is void. The first may have released the
// name. Then the second finds it free, or is refused, and the outcome is unknown.
func TestReleaseIsRetried(t *testing.T) {
	for _, test := range []struct {
		second   any
		released bool
		err      string
	}{
		{int64(1), true, ""},
		{int64(0), false, "outcome unknown"},
		{redisconn.ServerError("OOM command not allowed"), false, "outcome unknown"},
	} {
		t.Run(fmt.Sprint(test.second), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &stalledServer{second: test.second}
				s := New(c, Prompt())
				release := func() (bool, error) {
					return s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "token", Until: time.Now().Add(time.Minute), TokenEnds: true})
				}
				for range 100 { // only a fast server's requests are sent again
					if _, err := release(); err != nil {
						t.Fatal(err)
					}
				}
				c.stalled = true
				released, err := release()
				if c.calls != 2 || released != test.released {
					t.Errorf("%d calls, released %v; want 2, %v", c.calls, released, test.released)
				}
				var unavailable *dibs.UnavailableError
				if test.err == "" && err != nil || test.err != "" && (!errors.As(err, &unavailable) || unavailable.Refused || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("%v, want %q", err, test.err)
				}
			})
		})
	}
}
