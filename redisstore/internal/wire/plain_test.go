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
	want := []string{"EXISTS {lock:order:42}:dibs:queue", "GET lock:order:42", "HGET {lock:order:42}:dibs:meta =", "PTTL lock:order:42"}
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
	held, reserved, chosen := ownertoken.NewHolder(token, 0), ownertoken.NewHolder(token, 0), ownertoken.NewHolder("chosen 7", 0)
	reserved.Reserved = true
	fenced := held
	fenced.Fence, chosen.Fence = 17, 17
	left := int64(1500)
	const client = "web-7:211:q3ZkAbCdEfGhIjKl"
	for what, c := range map[string]struct {
		values []any // of the replies to EXISTS, GET, HGET and PTTL
		want   driver.State
	}{
		"free":                {[]any{none, nil, nil, int64(-2)}, driver.State{Name: "n"}},
		"free, with metadata": {[]any{none, nil, "17 " + client + " " + token, int64(-2)}, driver.State{Name: "n"}},
		"held":                {[]any{none, token, nil, left}, state(held)},
		"fence":               {[]any{none, token, "17 " + client + " " + token, left}, state(fenced)},
		"fence of another":    {[]any{none, token, "17 " + client + " another", left}, state(held)},
		"another record":      {[]any{none, token, "x " + client + " " + token, left}, state(held)},
		"reserved":            {[]any{none, token + " reserved", "17 " + client + " " + token, left}, state(reserved)},
		"chosen":              {[]any{none, "chosen 7", "17 " + client + " chosen 7", left}, state(chosen)},
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
		"queue":          {int64(1), token, nil, left},
		"queue, free":    {int64(1), nil, nil, int64(-2)},
		"shared":         {none, "dibs:shared 3", nil, left},
		"unknown token":  {none, "chosen 7", nil, left},
		"foreign":        {none, "7fb2518c-216e-4694-a8c4-fce4a1114ba0", "17 " + client + " another", left},
		"never expires":  {none, token, nil, int64(-1)},
		"has expired":    {none, token, nil, int64(-2)},
		"no number":      {"0", token, nil, left},
		"no text":        {none, int64(7), nil, left},
		"no time":        {none, token, nil, "1500"},
		"nothing at all": {nil, nil, nil, nil},
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
		replies := []redisconn.Reply{{Value: none}, {Value: token}, {}, {Value: left}}
		replies[i] = redisconn.Reply{Err: errors.New("refused")}
		if state, ok := ParsePlain("n", replies); ok {
			t.Errorf("error %d: %+v, want none", i, state)
		}
	}
}
