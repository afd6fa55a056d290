package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

func TestParseVote(t *testing.T) {
	waits := func(fields ...any) []any { return []any{now, "ID", fields} }
	for _, c := range []struct {
		reply any
		want  driver.VoteReply
		void  bool
	}{
		{[]any{now, "ID", "7"}, driver.VoteReply{AcquireReply: driver.AcquireReply{Held: true, Fence: 7}, Node: "ID"}, false},
		{[]any{now, int64(0)}, driver.VoteReply{}, true},
		{
			waits("5", int64(3), int64(1500), "h:1:x:9", "42"),
			driver.VoteReply{AcquireReply: driver.AcquireReply{Fence: 42, Ticket: 5, Position: 3, Remaining: 1500 * time.Millisecond, Holder: "h:1:x:9"}, Node: "ID"}, false,
		},
	} {
		if have, void, err := parseVote(driver.AcquireRequest{}, c.reply); err != nil || void != c.void || have != c.want {
			t.Errorf("%v: %+v, %v, %v; want %+v, %v", c.reply, have, void, err, c.want, c.void)
		}
	}
	_, _, err := parseVote(driver.AcquireRequest{Name: "n"}, []any{now, "ID", int64(1_500_000)})
	var recovering *driver.RecoveringError
	if !errors.Is(err, dibs.ErrUnavailable) || !errors.As(err, &recovering) || *recovering != (driver.RecoveringError{Node: "ID", Remaining: 1500 * time.Millisecond}) {
		t.Errorf("error %v, want that it was restarted", err)
	}
	for _, reply := range []any{
		nil, "7", int64(7), []any{}, []any{now}, []any{now, int64(1)}, []any{now, "ID"}, []any{"x", "ID", "7"}, []any{now, "", "7"},
		[]any{now, int64(1), "7"}, []any{now, "ID", "0"}, []any{now, "ID", "x"}, []any{now, "ID", int64(0)}, []any{now, "ID", int64(-1)},
		[]any{now, "ID", nil}, []any{now, "ID", "7", "8"}, waits(), waits("5", int64(3), int64(1), "h"), waits("5", int64(3), int64(1), "h", "x"),
		waits("5", int64(-3), int64(1), "h", "42"), waits("5", int64(3), int64(1), "h", "42", "43"), waits("5", "3", int64(1), "h", "42"),
	} {
		if a, void, err := parseVote(driver.AcquireRequest{}, reply); err == nil {
			t.Errorf("%v: %+v, %v, want an error", reply, a, void)
		}
	}
}
