// Package wire defines dibs' format in Redis: keys, scripts with their arguments, replies and
// notifications. docs/spec.md describes it, and testdata contains examples. The package does no I/O
// and uses no clock.
package wire

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// NodeKey identifies a store used as a quorum node.
const NodeKey = "dibs:node"

// FencePrefix begins the keys for fence high-water marks.
const FencePrefix = "dibs:fence:"

// SharedMark begins the lock key's value while it is shared. No token can begin with it.
const SharedMark = "dibs:shared "

// ChannelPrefix, followed by a client's name, is the client's channel.
const ChannelPrefix = "dibs:c:"

// The keys of a lock. All are in the lock key's hash slot, on a cluster or not.
const (
	queueSuffix   = ":dibs:queue"
	metaSuffix    = ":dibs:meta"
	holdersSuffix = ":dibs:holders"
	auxSeparator  = ":" // before the suffixes, so that {a} and a do not share keys
)

// A Format contains the settings on which keys and scripts depend.
type Format struct {
	Prefix   string // before each lock key
	Sharded  bool   // the server is a cluster
	Proxy    bool   // a proxy routes each command by its first key's hash tag
	Redisson bool   // lock keys are hashes, as in Redisson; otherwise strings
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

// joins reports whether requests can join a coalesced call.
func (f Format) joins() bool { return !f.Redisson && !f.Proxy }

// A Route locates a lock's keys. Names with equal routes can share a script call.
type Route struct {
	Slot int    // slot in a cluster; zero behind a proxy
	Tag  string // the text that a proxy hashes; empty without a proxy
}

// Keys are a lock's keys.
type Keys struct {
	Lock, Queue, Meta, Highwater, Holders string
	Route                                 Route // shared by all keys
}

// list returns the keys in the order in which most scripts have them.
func (k Keys) list() []string { return []string{k.Lock, k.Queue, k.Meta, k.Highwater, k.Holders} }

// Keys returns a name's keys.
func (f Format) Keys(name string) Keys {
	var buf [512]byte
	k := f.appendKeys(buf[:0], name)
	return k.split(string(k.text))
}

// Route returns a name's route. On a single server all names have the same route.
func (f Format) Route(name string) Route {
	switch {
	case f.Sharded:
		return Route{Slot: redisconn.SlotOf(f.Prefix + name)}
	case f.Proxy:
		return Route{Tag: redisconn.HashTag(f.Prefix + name)}
	}
	return Route{}
}

// joinedKeys are a lock's keys, joined into a single text, with their offsets.
type joinedKeys struct {
	text                             []byte
	lock, end                        int // the lock key is a part of the queue's key
	meta, holders, highwater, length int
	slot                             int
	proxy                            bool
}

// appendKeys writes a name's keys to b. An auxiliary key is the lock key with a suffix. The lock
// key is put in braces, or followed by a colon if it contains its own hash tag.
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

// route returns the keys' route, as a part of their joined text.
func (k joinedKeys) route(text string) Route {
	if !k.proxy {
		return Route{Slot: k.slot}
	}
	return Route{Tag: text[k.highwater+len(FencePrefix)+1 : k.length-1]}
}

// split returns the keys as parts of their joined text.
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

// CheckKey rejects a lock key if its auxiliary keys would be in another slot, or if it could itself
// be an auxiliary key.
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

// slotTag returns the smallest number whose decimal digits hash to a slot: the hash tag for the
// slot's fence high-water mark, the same in every implementation.
func slotTag(slot int) uint32 {
	const size = 3 // bytes in a number
	b := slotTags[size*slot:][:size]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
}

// slotTags contains a tag for each slot. go test -update finds and writes them: that takes several
// milliseconds.
//
//go:embed slottags.bin
var slotTags string
