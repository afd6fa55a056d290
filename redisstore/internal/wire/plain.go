package wire

import (
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// PlainCommands is how many commands AppendPlain appends.
const PlainCommands = 3

// AppendPlain appends commands that read a name's state without a script. Locking needs the same
// commands. A server executes them in less than half the time of inspect, which calls the same
// commands.
func (f Format) AppendPlain(cmds []redisconn.Cmd, name string) []redisconn.Cmd {
	k := f.Keys(name)
	words := []string{"EXISTS", k.Queue, "GET", k.Lock, "PTTL", k.Lock}
	return append(cmds, redisconn.Command(words[:2:2]...), redisconn.Command(words[2:4:4]...), redisconn.Command(words[4:]...))
}

// ParsePlain reads the replies to AppendPlain's commands. The state has no fence high-water mark.
// If ok is false, only inspect can return the state. Then the name has a queue, shared holders, a
// user's own token or a value not written by dibs, or it changed in the meantime.
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
	h, ok := plainHolder(replies[1].Value, replies[2].Value)
	if !ok {
		return driver.State{}, false
	}
	state.Holders, state.Holding = []driver.Holder{h}, 1
	return state, true
}

// plainHolder returns an exclusive holder that certainly belongs to dibs: the value contains its
// fence. If another client acquired the name between the commands, the remaining time is for that
// client's lease.
func plainHolder(lock, ttl any) (h driver.Holder, ok bool) {
	value, isText := lock.(string)
	left, isNumber := ttl.(int64)
	holder := parseValue(value)
	if !isText || !isNumber || left < 0 || holder.fence == 0 {
		return driver.Holder{}, false
	}
	h = ownertoken.NewHolder(holder.token, 0)
	h.Reserved, h.Remaining, h.Fence = holder.reserved, remaining(left), holder.fence
	return h, true
}
