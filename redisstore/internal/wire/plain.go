package wire

import (
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// PlainCommands is how many commands AppendPlain appends.
const PlainCommands = 4

// AppendPlain appends the commands that read the state of a name without a script. They are
// among those that locking needs. A server executes them in less than half the time of
// inspect, which calls the same commands.
func (f Format) AppendPlain(cmds []redisconn.Cmd, name string) []redisconn.Cmd {
	k := f.Keys(name)
	words := []string{"EXISTS", k.Queue, "GET", k.Lock, "HGET", k.Meta, "=", "PTTL", k.Lock}
	return append(cmds,
		redisconn.Command(words[:2:2]...), redisconn.Command(words[2:4:4]...),
		redisconn.Command(words[4:7:7]...), redisconn.Command(words[7:]...),
	)
}

// ParsePlain reads the replies to the commands of AppendPlain. The state has no fence
// high-water mark. If ok is false, only inspect can return the state. Then the name has a
// queue, shared holders or a value that dibs did not write, or it changed meanwhile.
func ParsePlain(name string, replies []redisconn.Reply) (state driver.State, ok bool) {
	for _, r := range replies {
		if r.Err != nil {
			return driver.State{}, false
		}
	}
	state.Name = name
	if queues, isNumber := replies[0].Value.(int64); !isNumber || queues > 0 {
		return driver.State{}, false
	}
	if replies[1].Value == nil {
		return state, true
	}
	h, ok := plainHolder(replies[1].Value, replies[2].Value, replies[3].Value)
	if !ok {
		return driver.State{}, false
	}
	state.Holders, state.Holding = []driver.Holder{h}, 1
	return state, true
}

// plainHolder returns an exclusive holder that is certainly of dibs. If another client
// acquired the name between the commands, the remaining time is that of its lease.
func plainHolder(lock, record, ttl any) (h driver.Holder, ok bool) {
	stored, isText := lock.(string)
	left, isNumber := ttl.(int64)
	if !isText || !isNumber || left < 0 || strings.HasPrefix(stored, SharedMark) {
		return driver.Holder{}, false
	}
	fence := recordedFence(record, stored)
	if fence == 0 && !foreign.IsDibs(stored) {
		return driver.Holder{}, false
	}
	token, reserved := cutReserved(stored)
	h = ownertoken.NewHolder(token, 0)
	h.Reserved, h.Remaining, h.Fence = reserved, remaining(left), fence
	return h, true
}

// recordedFence returns the fence in a record if it is of this token, or zero: see record.lua.
func recordedFence(record any, token string) uint64 {
	text, _ := record.(string)
	fence, rest, _ := strings.Cut(text, " ")
	if strings.HasPrefix(rest, ":") {
		if !strings.HasSuffix(token, rest) {
			return 0
		}
	} else if _, owner, _ := strings.Cut(rest, " "); owner != token {
		return 0
	}
	n, err := strconv.ParseUint(fence, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
