package wire

import (
	"strconv"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// types returns the types of a lock's keys, in the order of Keys.list. In Redisson mode the lock
// key has no fixed type: a hash can have another shape.
func (f Format) types() []string {
	if f.Redisson {
		return []string{"", "zset", "hash", "string", "zset"}
	}
	return []string{"string", "zset", "hash", "string", "zset"}
}

// Describe encodes a query over names in a single slot. It finds the first key with an unexpected
// type.
func (f Format) Describe(r *Request, names []string) {
	r.resetMany(f.scripts().Describe)
	for _, name := range names {
		k := f.Keys(name)
		r.addKeys(k.Route, k.list()...)
		r.add(f.types()...)
	}
}

// ParseDescription reads describe's reply: the value, and the index of its key, negative if there
// is none.
func ParseDescription(v any) (value foreign.Value, index int, err error) {
	list, _ := v.([]any)
	r := reader{fields: list}
	value.Now = r.int()
	if index = int(r.int()) - 1; index < 0 && !r.bad && len(r.fields) == 0 {
		return foreign.Value{}, -1, nil
	}
	value.Type, value.TTL, value.Size = r.string(), remaining(r.int()), int(r.int())
	for len(r.fields) > 0 && !r.bad {
		value.Items = append(value.Items, foreign.Item{Name: r.string(), Value: r.string()})
	}
	if r.bad || index < 0 {
		return foreign.Value{}, -1, redisconn.Unexpected(v)
	}
	return value, index, nil
}

// RevokeForeign encodes the end of a foreign lock, after comparing its value. A lock with a
// different expiry is a different lock, unless expires is zero.
func (f Format) RevokeForeign(r *Request, name string, value foreign.Value, rule foreign.Rule, expires time.Time) {
	r.reset(f.scripts().RevokeForeign, f.Keys(name))
	command, channel, at := "", "", ""
	if rule.Channel != "" {
		command, channel = "PUBLISH", rule.Channel
	}
	here := func(key string) bool {
		if f.Proxy {
			return key != "" && redisconn.HashTag(key) == r.Route.Tag
		}
		return key != "" && redisconn.SlotOf(key) == r.Route.Slot
	}
	if here(rule.Queue) {
		r.Keys = append(r.Keys, rule.Queue)
	}
	if f.Sharded && here(channel) {
		r.Keys, command = append(r.Keys, channel), "SPUBLISH"
	}
	if !expires.IsZero() {
		at = strconv.FormatInt(expires.UnixMilli(), 10)
	}
	r.add(f.check(), value.Type, at, command, channel, rule.Message)
	for _, item := range value.Items {
		r.add(item.Name)
		if value.Type == "hash" {
			r.add(item.Value)
		}
	}
}

// ParseForeignRevocation reads revoke_foreign's reply: whether the lock was ended, and how
// many subscribers were notified.
func ParseForeignRevocation(v any) (ended bool, notified int64, err error) {
	list, _ := v.([]any)
	r := reader{fields: list}
	r.int() // the server's time
	n, notified := r.int(), r.int()
	if r.bad || len(r.fields) > 0 || n != 0 && n != 1 || notified < 0 {
		return false, 0, redisconn.Unexpected(v)
	}
	return n == 1, notified, nil
}
