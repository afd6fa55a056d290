package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

func TestAppendPlain(t *testing.T) {
	cmds := Format{Prefix: "lock:"}.AppendPlain(nil, "order:42")
	var have []string
	for i := range cmds {
		have = append(have, strings.Join(cmds[i].Words(), " "))
	}
	want := []string{"EXISTS {lock:order:42}:dibs:queue", "GET lock:order:42", "PTTL lock:order:42"}
	if len(cmds) != PlainCommands || !reflect.DeepEqual(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}

func TestParsePlain(t *testing.T) {
	const token = "web-7:211:q3ZkAbCdEfGhIjKl:m-00000001:nightly"
	none := int64(0)
	state := func(h driver.Holder) driver.State {
		h.Remaining = 1500 * time.Millisecond
		return driver.State{Name: "n", Holders: []driver.Holder{h}, Holding: 1}
	}
	held, reserved := ownertoken.NewHolder(token, 0), ownertoken.NewHolder(token, 0)
	held.Fence, reserved.Fence, reserved.Reserved = 17, 17, true
	left := int64(1500)
	for what, c := range map[string]struct {
		values []any // replies to EXISTS, GET and PTTL
		want   driver.State
	}{
		"free":     {[]any{none, nil, int64(-2)}, driver.State{Name: "n"}},
		"held":     {[]any{none, "17 " + token, left}, state(held)},
		"reserved": {[]any{none, "17 " + token + " reserved", left}, state(reserved)},
	} {
		replies := make([]redisconn.Reply, PlainCommands)
		for i, v := range c.values {
			replies[i].Value = v
		}
		if have, ok := ParsePlain("n", replies); !ok || !reflect.DeepEqual(fieldsOf(have), fieldsOf(c.want)) {
			t.Errorf("%s: %+v, %v; want %+v", what, have, ok, c.want)
		}
	}
	for what, values := range map[string][]any{
		"queue":            {int64(1), "17 " + token, left},
		"queue, free":      {int64(1), nil, int64(-2)},
		"shared":           {none, "dibs:shared 3", left},
		"no fence":         {none, token, left},
		"no number before": {none, "17x " + token, left},
		"unknown token":    {none, "chosen 7", left},
		"foreign":          {none, "7fb2518c-216e-4694-a8c4-fce4a1114ba0", left},
		"never expires":    {none, "17 " + token, int64(-1)},
		"has expired":      {none, "17 " + token, int64(-2)},
		"no number":        {"0", "17 " + token, left},
		"no text":          {none, int64(7), left},
		"no time":          {none, "17 " + token, "1500"},
		"nothing at all":   {nil, nil, nil},
	} {
		replies := make([]redisconn.Reply, PlainCommands)
		for i, v := range values {
			replies[i].Value = v
		}
		if state, ok := ParsePlain("n", replies); ok {
			t.Errorf("%s: %+v, want none", what, state)
		}
	}
	for i := range PlainCommands {
		replies := []redisconn.Reply{{Value: none}, {Value: "17 " + token}, {Value: left}}
		replies[i] = redisconn.Reply{Err: errors.New("refused")}
		if state, ok := ParsePlain("n", replies); ok {
			t.Errorf("error %d: %+v, want none", i, state)
		}
	}
}
