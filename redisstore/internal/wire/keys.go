// Package wire is the format in which the locks of dibs are in Redis: keys, the scripts with
// their arguments, replies and notifications. docs/spec.md describes it, and testdata has
// examples of each. It has no I/O and no clock.
package wire

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// NodeKey is the key that identifies a store that is a node of a quorum.
const NodeKey = "dibs:node"

// FencePrefix begins the keys of fence high-water marks.
const FencePrefix = "dibs:fence:"

// SharedMark begins the value of the lock key while it is shared. No token may begin with
// it.
const SharedMark = "dibs:shared "

// ChannelPrefix and the name of a client are its channel.
const ChannelPrefix = "dibs:c:"

// The keys of one lock. All are in the lock key's hash slot, on a cluster or not.
const (
	queueSuffix   = ":dibs:queue"
	metaSuffix    = ":dibs:meta"
	holdersSuffix = ":dibs:holders"
	auxSeparator  = ":" // before the suffixes, so that {a} and a do not share keys
)

// A Format is what the keys and scripts of a store depend on.
type Format struct {
	Prefix   string // of each lock key
	Sharded  bool   // the server is a cluster
	Proxy    bool   // a proxy routes each command by the hash tag of its first key
	Redisson bool   // the lock keys are hashes, as those of Redisson; else strings
}

func (f Format) scripts() *Scripts {
	switch {
	case f.Proxy:
		return proxyScripts()
	case f.Redisson:
		return redissonScripts(f.Sharded)
	}
	return Plain()
}

// joins reports whether requests may be part of a coalesced call.
func (f Format) joins() bool { return !f.Redisson && !f.Proxy }

// A Route is where the keys of a lock are. Names with equal routes may share a script call.
type Route struct {
	Slot int    // of a cluster; zero behind a proxy
	Tag  string // what a proxy hashes; empty without a proxy
}

// Keys are the keys of a lock.
type Keys struct {
	Lock, Queue, Meta, Highwater, Holders string
	Route                                 Route // of all of them
}

// list returns the keys in the order in which most scripts have them.
func (k Keys) list() []string { return []string{k.Lock, k.Queue, k.Meta, k.Highwater, k.Holders} }

// Keys returns the keys of a name.
func (f Format) Keys(name string) Keys {
	var buf [512]byte
	k := f.appendKeys(buf[:0], name)
	return k.split(string(k.text))
}

// Route returns where a name is. All names of a single server have the same route.
func (f Format) Route(name string) Route {
	switch {
	case f.Sharded:
		return Route{Slot: redisconn.SlotOf(f.Prefix + name)}
	case f.Proxy:
		return Route{Tag: redisconn.HashTag(f.Prefix + name)}
	}
	return Route{}
}

// joinedKeys are the keys of a lock, written one after another into one text, with the
// offset of each.
type joinedKeys struct {
	text                             []byte
	lock, end                        int // the lock key is part of the queue's key
	meta, holders, highwater, length int
	slot                             int
	proxy                            bool
}

// appendKeys writes the keys of a name to b. An auxiliary key is the lock key with a
// suffix. The lock key is put in braces; if it has a hash tag of its own, a colon follows
// it instead.
func (f Format) appendKeys(b []byte, name string) joinedKeys {
	b = append(append(append(b, '{'), f.Prefix...), name...)
	k := joinedKeys{lock: 1, end: len(b)}
	braced := !Tagged(b[1:])
	if braced {
		b = append(b, '}')
	} else {
		b = append(b[:0], b[1:]...)
		k.lock, k.end = 0, len(b)
		b = append(b, auxSeparator...)
	}
	stem := len(b)
	b = append(b, queueSuffix...)
	k.meta = len(b)
	b = append(append(b, b[:stem]...), metaSuffix...)
	k.holders = len(b)
	b = append(append(b, b[:stem]...), holdersSuffix...)
	k.highwater, k.proxy = len(b), f.Proxy
	b = append(b, FencePrefix+"{"...)
	if f.Proxy {
		b = append(b, redisconn.HashTag(b[k.lock:k.end])...)
	} else {
		k.slot = redisconn.SlotOf(b[k.lock:k.end])
		b = strconv.AppendUint(b, uint64(slotTag(k.slot)), 10)
	}
	b = append(b, '}')
	k.length, k.text = len(b), b
	return k
}

// route returns the route of the keys, as a part of the text that they were written to.
func (k joinedKeys) route(text string) Route {
	if !k.proxy {
		return Route{Slot: k.slot}
	}
	return Route{Tag: text[k.highwater+len(FencePrefix)+1 : k.length-1]}
}

// split returns the keys as parts of the text that they were written to.
func (k joinedKeys) split(text string) Keys {
	return Keys{
		Lock: text[k.lock:k.end], Queue: text[:k.meta], Meta: text[k.meta:k.holders],
		Highwater: text[k.highwater:k.length], Holders: text[k.holders:k.highwater], Route: k.route(text),
	}
}

// CheckName rejects a valid name whose keys cannot be used: see CheckKey.
func (f Format) CheckName(name string) error {
	if f.Prefix == "" {
		return CheckKey(name)
	}
	return CheckKey(f.Prefix + name)
}

// CheckKey rejects a lock key whose auxiliary keys would be in another slot, or that
// could be an auxiliary key itself.
func CheckKey(key string) error {
	switch {
	case key == NodeKey, strings.HasPrefix(key, FencePrefix), strings.HasSuffix(key, queueSuffix), strings.HasSuffix(key, metaSuffix),
		strings.HasSuffix(key, holdersSuffix):
		return fmt.Errorf("%w: key %q is an auxiliary key of dibs", driver.ErrInvalid, key)
	case strings.Contains(key, "}") && !Tagged(key):
		return fmt.Errorf("%w: key %q contains a } but no {hash tag}: its queue would be in another slot", driver.ErrInvalid, key)
	}
	return nil
}

// Tagged reports whether a key has a hash tag.
func Tagged[T redisconn.KeyText](key T) bool { return len(redisconn.HashTag(key)) < len(key) }

// slotTag returns the smallest number whose decimal digits hash to a slot: the hash tag
// of the slot's fence high-water mark, the same in every implementation.
func slotTag(slot int) uint32 {
	const size = 3 // bytes of a number
	b := slotTags[size*slot:][:size]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
}

// slotTags has the tags of all slots. go test -update finds and writes them: that takes
// several milliseconds.
//
//go:embed slottags.bin
var slotTags string
