// Package foreign recognises values not written by dibs: locks and auxiliary keys from other
// libraries, and values from other programs.
//
// It examines the key, its type, its TTL and the beginning of its content, without I/O or a clock.
// An unrecognised value counts as data, so a mistake leaves a key alone. The package recognises
// string locks, which can share keys with dibs, and Redisson's locks. It does not guess further.
// If all strings were data, an operator could not end a lock of redsync. If all strings were locks,
// dibs unlock --force could delete a document.
package foreign

import (
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Value contains the parts of a key that were read.
type Value struct {
	Key   string
	Bare  bool          // the key is a name without a prefix, so it may be anything
	Type  string        // as the command TYPE returns it
	TTL   time.Duration // negative: it never expires
	Size  int           // bytes of a string, elements of other values
	Items []Item        // the first elements; for a string, a single Item with the string as its Name
	Now   int64         // the server's time in µs
}

// An Item is a hash field with its value, or a string as its Name.
type Item struct{ Name, Value string }

// complete reports whether Items contains the whole value.
func (v Value) complete() bool {
	if v.Type == "string" {
		return len(v.Items) == 1 && len(v.Items[0].Name) == v.Size
	}
	return len(v.Items) == v.Size
}

// A Description describes a Value.
type Description struct {
	Kind    string          // "Redisson RLock", "hash"
	Lock    bool            // it is a foreign lock
	Unique  bool            // no two locks have the same content
	Inner   bool            // an auxiliary key of another library
	Holders []driver.Holder // a lock's owners, at most as many as in the Value
	Holding int             // their number
	Release Rule            // how the library ends such a lock by force
}

// A Rule describes how a library ends a lock by force, in its own program.
type Rule struct {
	Channel string // for the message to its waiters
	Message string
	Queue   string // list of waiters: the first waiter listens on Channel:waiter
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

// data describes a value that is not a lock.
func data(v Value) Description { return Description{Kind: v.Type} }

// Removable reports whether a foreign lock can be deleted. A key without a TTL may be anything, and
// a partly read lock cannot be compared. Hashes are removable only if Redisson ends them by a rule.
func (d Description) Removable(v Value) bool {
	known := v.Type == "string" || d.Release.Channel != ""
	return d.Lock && known && v.TTL >= 0 && v.complete()
}

// Advice returns what an operator can do about a value. own is true if the key is an auxiliary key
// of a dibs lock.
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

// exclusive returns a lock's only holder.
func exclusive(token, owner string, v Value) []driver.Holder {
	return []driver.Holder{{Token: token, Owner: owner, Remaining: v.TTL}}
}

// all reports whether there are items, and each of them complies.
func all(items []Item, complies func(Item) bool) bool {
	return len(items) > 0 && !slices.ContainsFunc(items, func(i Item) bool { return !complies(i) })
}
