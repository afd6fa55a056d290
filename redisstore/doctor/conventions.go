package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Two programs with different prefixes have two locks for one name: both hold it at once,
// and nothing reports it. This check looks for locks of other libraries beside those of the
// store. It only reads, and what it reads is bounded:
const (
	maxNames     = 500                    // names whose usual other keys are tried
	maxVisited   = 100_000                // keys that are compared with these names, on each server
	maxVisitTime = 500 * time.Millisecond // and for how long
	maxDescribed = 100                    // keys that are read, on each server
)

// conventions are the prefixes of other libraries, and of none. Others are found by the
// names that follow them.
var conventions = []string{"", "lock:", "mutex:", "redlock:", "semaphore:", "lock4j:", "DISTRIBUTED_LOCK:"}

// names are some that the store has locked. They are known when all servers were visited: another
// prefix may be in a slot of another server. They are safe for concurrent use.
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

// add adds the names of keys.
func (n *names) add(keys []string, prefix string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = make(map[string]bool)
	}
	for _, key := range keys {
		if len(n.known) < maxNames {
			n.known[strings.TrimPrefix(key, prefix)] = true
		}
	}
}

func (n *names) all() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.known)
}

// checkOtherPrefixes looks on one server for locks of other libraries with the names that
// are known, and other prefixes.
func (e *nodeCheck) checkOtherPrefixes() {
	names := e.names.all()
	if len(names) == 0 {
		return
	}
	keys := append(e.usualKeys(names), e.keysThatEndWith(names)...)
	slices.Sort(keys)
	var beside []string
	for _, key := range first(slices.Compact(keys), maxDescribed) {
		if what := e.describeLock(key); what != "" {
			beside = append(beside, fmt.Sprintf("%q, a %s", key, what))
		}
	}
	if e.unreadable != nil {
		e.Find(checkup.Unchecked, "other-prefix", fmt.Sprintf("keys that may be locks of other libraries could not be read: %v", e.unreadable),
			"not checked: locks of other libraries with other prefixes",
			fmt.Sprintf("ACL SETUSER %s +type +getrange +strlen +hlen +hkeys +hstrlen +llen +scard +xlen ~*, at least while Doctor runs", e.user))
	}
	if len(beside) == 0 {
		return
	}
	const shown = 3
	what := fmt.Sprintf("beside names that dibs has locked with the prefix %q, there are locks of other libraries with other prefixes: %s", e.target.Prefix, strings.Join(first(beside, shown), "; "))
	if more := len(beside) - shown; more > 0 {
		what += fmt.Sprintf("; and %d more", more)
	}
	e.Find(checkup.Warning, "other-prefix", what,
		"a name with two keys is two locks: if both sides protect the same thing, both hold it at once, and neither notices",
		"give both sides the same key: set Prefix (dibs --prefix) to the prefix of the other library; docs/interop.md lists prefixes. If the names mean different things, ignore this")
}

func first(list []string, most int) []string { return list[:min(len(list), most)] }

// usualKeys returns the keys of the names with the usual prefixes that exist on this
// server. A node of a cluster redirects the others.
func (e *nodeCheck) usualKeys(names map[string]bool) (found []string) {
	var keys []string
	for name := range names {
		for _, prefix := range conventions {
			if key := prefix + name; e.mayBeForeign(key) {
				keys = append(keys, key)
			}
		}
	}
	e.each(keys, func(key string) redisconn.Cmd { return redisconn.Command("EXISTS", key) }, func(key string, r redisconn.Reply) {
		if r.Value == int64(1) {
			found = append(found, key)
		}
	})
	return found
}

// keysThatEndWith returns keys of a sample that consist of any prefix, a colon and one of
// the names.
func (e *nodeCheck) keysThatEndWith(names map[string]bool) (found []string) {
	visited := 0
	// An error ends the sample early; checkKeys has reported what the user may not do.
	_ = e.scan("*", maxVisitTime, func(key string) bool {
		if e.mayBeForeign(key) && endsWithName(key, names) {
			found = append(found, key)
		}
		visited++
		return visited < maxVisited
	})
	return found
}

// endsWithName reports whether a name follows one of the colons in a key.
func endsWithName(key string, names map[string]bool) bool {
	for rest := key; ; {
		_, after, found := strings.Cut(rest, ":")
		if !found {
			return false
		}
		if names[after] {
			return true
		}
		rest = after
	}
}

// mayBeForeign reports whether a key is neither one of the store's, nor an auxiliary key.
func (e *nodeCheck) mayBeForeign(key string) bool {
	ours := e.target.Prefix != "" && strings.HasPrefix(key, e.target.Prefix)
	return !ours && driver.CheckName(key) == nil && wire.CheckKey(key) == nil && !foreign.IsInner(key)
}

// describeLock returns what a key is, if it looks like a foreign lock beyond doubt: a
// string has to expire, and to look like a token.
func (e *nodeCheck) describeLock(key string) string {
	reply := e.do(wire.DescribeKey(key))[0]
	value, index, err := wire.ParseDescription(reply.Value)
	if reply.Err != nil || err != nil || index < 0 { // it has expired, or may not be read
		e.unreadable = cmp.Or(reply.Err, err)
		return ""
	}
	value.Key, value.Bare = key, true
	if value.Type == "string" && (value.TTL < 0 || len(value.Items) != 1 || foreign.IsDibs(value.Items[0].Name)) {
		return ""
	}
	d := foreign.Describe(value)
	if !d.Lock || value.Type == "string" && !d.Unique {
		return ""
	}
	return d.Kind
}

// ownKeys returns those keys whose values are of dibs. Without a prefix, any key may be a
// name.
func (e *nodeCheck) ownKeys(keys []string) (own []string) {
	const longest = "300" // bytes of a token, and a few more
	e.each(keys, func(key string) redisconn.Cmd { return redisconn.Command("GETRANGE", key, "0", longest) }, func(key string, r redisconn.Reply) {
		if text, ok := r.Value.(string); ok && foreign.IsDibs(text) {
			own = append(own, key)
		}
	})
	return own
}
