package redistest

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A ClockConn is a Conn to a server whose time a test sets. Scripts see a stopped clock, so a slow
// machine does not change a test's times. Step sets the clock alone, as an administrator does. Pass
// also shortens each key's TTL, so time passes without waiting. Other users of the server, and
// TTLs, see its real time.
type ClockConn struct {
	*Conn

	mu  sync.Mutex
	now time.Time
}

// DialClock returns a ClockConn to a host:port, which is closed with the test.
func DialClock(t testing.TB, addr string) *ClockConn {
	c := &ClockConn{Conn: Dial(addr), now: time.Now()}
	t.Cleanup(c.Conn.Close)
	return c
}

// Step sets the clock forward, or back if d is negative. TTLs go on.
func (c *ClockConn) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// passScript shortens all keys' TTLs. A TTL that reaches 0 deletes its key, as in real time.
const passScript = `for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
end`

// Pass lets time pass for the server.
func (c *ClockConn) Pass(t testing.TB, d time.Duration) {
	t.Helper()
	if _, err := c.Call(t.Context(), "EVAL", passScript, "0", fmt.Sprint(d.Milliseconds())); err != nil {
		t.Fatal(err)
	}
	c.Step(d)
}

// readsClock matches the expression in dibs' scripts that reads the clock.
var readsClock = regexp.MustCompile(`\b(redis\.)?call\('TIME'\)`)

// clockFunction replaces TIME.
const clockFunction = `local function clock_of_the_test() return { '%d', '%d' } end
`

// Do implements redisconn.Conn.
func (c *ClockConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	c.mu.Lock()
	seconds, micros := c.now.Unix(), c.now.Nanosecond()/1000
	c.mu.Unlock()
	changed := make([]redisconn.Cmd, len(cmds))
	for i, cmd := range cmds {
		if cmd.Script != nil {
			text := fmt.Sprintf(clockFunction, seconds, micros) + readsClock.ReplaceAllString(cmd.Script.Text, "clock_of_the_test()")
			cmd.Script, cmd.Whole = &redisconn.Script{Text: text}, true
		}
		changed[i] = cmd
	}
	c.Conn.Do(ctx, until, changed, replies)
}
