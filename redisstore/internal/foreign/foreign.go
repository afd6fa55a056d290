// Package foreign recognises what dibs did not write: locks of other libraries, their
// auxiliary keys, and values of other programs.
//
// It judges by the key, its type, its TTL and the beginning of its content. It has neither
// I/O nor a clock. A value that is not recognised is data: a mistake in that direction
// leaves a key alone. So it recognises the locks that share keys with dibs, which are strings,
// and those of Redisson, and guesses at nothing else.
package foreign

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Value is what was read of a key.
type Value struct {
	Key   string
	Bare  bool          // the key is a name without a prefix, so it may be anything
	Type  string        // as the command TYPE returns it
	TTL   time.Duration // negative: it never expires
	Size  int           // bytes of a string, elements of another value
	Items []Item        // the first elements; of a string, itself as the Name of one
	Now   int64         // the server's time in µs
}

// An Item is a field of a hash with its value, or a string as its Name.
type Item struct{ Name, Value string }

// complete reports whether Items has all of the value.
func (v Value) complete() bool {
	if v.Type == "string" {
		return len(v.Items) == 1 && len(v.Items[0].Name) == v.Size
	}
	return len(v.Items) == v.Size
}

// A Description is what a Value is.
type Description struct {
	Kind    string          // "Redisson RLock", "hash"
	Lock    bool            // it is a foreign lock
	Unique  bool            // no two locks have the same content
	Inner   bool            // it is an auxiliary key of another library
	Holders []driver.Holder // of a lock: its owners, at most as many as the Value has
	Holding int             // their number
	Release Rule            // how the library ends such a lock by force
}

// A Rule is how a library ends a lock by force, in one of its own programs.
type Rule struct {
	Channel string // of the message that notifies its waiters
	Message string
	Queue   string // list of its waiters: the first one has a channel of its own, Channel:waiter
}

// Describe recognises a value.
func Describe(v Value) Description {
	if IsInner(v.Key) {
		return Description{Kind: innerKind, Inner: true}
	}
	switch v.Type {
	case "string":
		return describeString(v)
	case "hash":
		return describeHash(v)
	}
	return data(v)
}

// data describes a value that is no lock.
func data(v Value) Description { return Description{Kind: v.Type} }

// Removable reports whether a foreign lock may be deleted. A key without a TTL may be
// anything, and a lock that was not read completely cannot be compared. Of the hashes, only
// those that Redisson ends by a rule.
func (d Description) Removable(v Value) bool {
	known := v.Type == "string" || d.Release.Channel != ""
	return d.Lock && known && v.TTL >= 0 && v.complete()
}

// Advice says what an operator can do about a value. own reports whether the key is one
// that dibs has beside a lock.
func (d Description) Advice(v Value, own bool) string {
	switch {
	case own:
		return "it is an auxiliary key of a lock of dibs; find the program that wrote it, and delete the key"
	case d.Inner:
		return "it belongs to a lock of another library; use another name"
	case d.Removable(v):
		return "wait until its holder releases it or it expires; or end it: dibs unlock NAME --force --reason TEXT"
	case d.Lock && v.TTL < 0:
		return "it never expires, so it may be data; find the program that wrote it; if that has ended, delete the key"
	case d.Lock:
		return "wait until its holder releases it or it expires; dibs does not end such locks"
	}
	return "it is a value of another program; use another name or another prefix"
}

// exclusive returns the only holder of a lock.
func exclusive(token, owner string, v Value) []driver.Holder {
	return []driver.Holder{{Token: token, Owner: owner, Remaining: v.TTL}}
}

// all reports whether there are items, and each of them complies.
func all(items []Item, complies func(Item) bool) bool {
	return len(items) > 0 && !slices.ContainsFunc(items, func(i Item) bool { return !complies(i) })
}
