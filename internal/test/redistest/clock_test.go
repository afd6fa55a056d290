package redistest

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Scripts should see a stepped clock, and keys should expire when time passes.
func TestClockConn(t *testing.T) {
	t.Parallel()
	server := Start(t)
	c := DialClock(t, server.Addr())
	server.MustCmd(t, "SET", "key", "value", "PX", "60000")
	now := func() time.Time {
		t.Helper()
		script := redisconn.Script{Text: "local time = redis.call('TIME')\nreturn time[1] * 1000000 + time[2]"}
		var reply [1]redisconn.Reply
		c.Do(t.Context(), time.Time{}, []redisconn.Cmd{{Script: &script}}, reply[:])
		us, ok := reply[0].Value.(int64)
		if !ok {
			t.Fatalf("%+v", reply[0])
		}
		return time.UnixMicro(us)
	}
	within := func(ahead time.Duration) {
		t.Helper()
		if off := time.Until(now().Add(-ahead)).Abs(); off > 10*time.Second {
			t.Errorf("the clock is off by %v, want %v", off, ahead)
		}
	}
	within(0)
	c.Step(-time.Hour)
	within(-time.Hour)
	c.Pass(t, 30*time.Second)
	within(-time.Hour + 30*time.Second)
	if left, _ := server.MustCmd(t, "PTTL", "key").(int64); left > 30000 || left < 1 {
		t.Errorf("%d ms left of a minute after half a minute", left)
	}
	c.Pass(t, 31*time.Second)
	if n := server.MustCmd(t, "EXISTS", "key"); n != int64(0) {
		t.Errorf("the key is there after a minute: %v", n)
	}
}
