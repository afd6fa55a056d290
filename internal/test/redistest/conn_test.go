package redistest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

func TestDoAnswersInOrder(t *testing.T) {
	c := dial(t, Start(t).Addr())
	cmds := []redisconn.Cmd{
		redisconn.Command("SET", "k", "v"),
		redisconn.Command("GET", "k"),
		redisconn.Command("GET", "none"),
		redisconn.Command("INCR", "k"),
		redisconn.Command("APPEND", "k", "w"),
		redisconn.Command("MGET", "k", "none"),
	}
	got := make([]redisconn.Reply, len(cmds))
	for i := range got {
		got[i] = redisconn.Reply{Value: "stale", Err: errClosed}
	}
	c.do(callContext(t, longTimeout), cmds, got)
	want := []redisconn.Reply{
		{Value: "OK"},
		{Value: "v"},
		{},
		{Err: redisconn.ServerError("ERR value is not an integer or out of range")},
		{Value: int64(2)},
		{Value: []any{"vw", nil}},
	}
	for i := range want {
		if !reflect.DeepEqual(got[i].Value, want[i].Value) || !errors.Is(got[i].Err, want[i].Err) {
			t.Errorf("%q: got %v, want %v", cmds[i].Words(), got[i], want[i])
		}
	}
}

func TestDoNothing(t *testing.T) {
	Dial("127.0.0.1:1").do(t.Context(), nil, nil)
}

func TestDoWithoutServer(t *testing.T) {
	c := Dial("127.0.0.1:1")
	cmds := []redisconn.Cmd{redisconn.Command("PING"), redisconn.Command("PING")}
	replies := make([]redisconn.Reply, len(cmds))
	c.do(callContext(t, longTimeout), cmds, replies)
	for i, reply := range replies {
		if reply.Err == nil {
			t.Errorf("command %d: got %v, want an error", i, reply.Value)
		}
	}
}

func TestDoReusesItsConnection(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	for range 10 {
		want(t, c, "PONG", "PING")
	}
	clients := s.MustCmd(t, "INFO", "clients").(string)
	if got := field(clients, "connected_clients"); got != "2" { // including this connection
		t.Errorf("got %s connections, want 2", got)
	}
}

func TestConcurrentCallsGetTheirOwnAnswers(t *testing.T) {
	c := dial(t, Start(t).Addr())
	ctx := callContext(t, longTimeout)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 50 {
				want := fmt.Sprint(i, j)
				if got, err := c.Call(ctx, "ECHO", want); err != nil || got != want {
					t.Errorf("got %v, %v, want %v", got, err, want)
				}
			}
		})
	}
	callers.Wait()
}

// block runs a blocking command, and returns when the server received it.
func block(ctx context.Context, t *testing.T, s *Server, c *Conn) <-chan error {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, "BLPOP", "none", "0")
		failed <- err
	}()
	eventually(t, "the command blocks", func() bool {
		return field(s.MustCmd(t, "INFO", "clients").(string), "blocked_clients") == "1"
	})
	return failed
}

func receive(t *testing.T, failed <-chan error) error {
	t.Helper()
	select {
	case err := <-failed:
		return err
	case <-time.After(longTimeout):
		t.Fatal("the call did not return")
		return nil
	}
}

func TestDoIsUnblockedByCancellation(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	ctx, cancel := context.WithCancel(callContext(t, time.Minute))
	failed := block(ctx, t, s, c)
	cancel()
	if err := receive(t, failed); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	want(t, c, "PONG", "PING")
}

func TestDoIsBoundedWithoutADeadline(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := dial(t, s.Addr())
	_, err := c.Call(context.Background(), "BLPOP", "none", "0")
	wantTimeout(t, err)
	want(t, c, "PONG", "PING")
}

func TestDoUsesALaterDeadline(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := dial(t, s.Addr())
	want(t, c, nil, "BLPOP", "none", strconv.Itoa(int(ioTimeout/time.Second)+1))
}

func TestARestartCostsOneCall(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() { _, _ = c.Call(callContext(t, longTimeout), "BLPOP", "none", "0.05") })
	}
	callers.Wait() // now there are some idle connections
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(callContext(t, longTimeout), "PING"); err == nil {
		t.Error("a connection to the killed server has replied")
	}
	want(t, c, "PONG", "PING")
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	failed := block(callContext(t, time.Minute), t, s, c)
	c.Close()
	if err := receive(t, failed); err == nil {
		t.Error("the call succeeded")
	}
	if _, err := c.Call(t.Context(), "PING"); !errors.Is(err, redisconn.ErrClosed) {
		t.Errorf("after Close: got %v, want %v", err, redisconn.ErrClosed)
	}
}

func TestScan(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	mset := []string{"MSET", "other", "v"}
	for i := range 3000 {
		mset = append(mset, fmt.Sprint("key:", i), "v")
	}
	want(t, c, "OK", mset...)
	seen := map[string]bool{}
	err := c.Scan(callContext(t, longTimeout), "key:*", func(keys []string) {
		for _, key := range keys {
			seen[key] = true
		}
	})
	if err != nil || len(seen) != 3000 || seen["other"] {
		t.Errorf("got %d keys, %v, want 3000", len(seen), err)
	}
	s.Kill()
	if err := c.Scan(callContext(t, longTimeout), "*", func([]string) {}); err == nil {
		t.Error("a scan of nothing succeeds")
	}
}
