package etcdstore

import (
	"strconv"
	"strings"
)

// A layout names the keys in etcd. All keys begin with the prefix.
//
//	lock/orders/7f3a…-0       an entry in the wait queue for the name orders
//	lock//base                the number that fences are counted from
//	lock//letters/CLIENT/…    revocations, for a client
//	lock//cancelled/7f3a…-5   the store's fifth acquire comes too late
//
// No name is empty, so no queue has a key that begins with the prefix and a slash.
type layout struct{ prefix string }

// queue returns the prefix of a name's entries.
func (l layout) queue(name string) string { return l.prefix + escape(name) + "/" }

func (l layout) base() string { return l.prefix + "/base" }

func (l layout) letters(client string) string { return l.prefix + "/letters/" + escape(client) + "/" }

func (l layout) cancelled(request string) string { return l.prefix + "/cancelled/" + request }

// letter returns the key of a revocation, for the client of the entry created at a revision.
func (l layout) letter(client string, created int64) string {
	return l.letters(client) + strconv.FormatInt(created, 10)
}

// nameOf returns the name of an entry's key, or false if the key is no entry of any name: another
// library does not escape names.
func (l layout) nameOf(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.prefix)
	if !ok {
		return "", false
	}
	escaped, id, ok := strings.Cut(rest, "/")
	if !ok || escaped == "" || id == "" || strings.Contains(id, "/") {
		return "", false
	}
	name = unescape(escaped)
	return name, escape(name) == escaped
}

// In a key, a slash ends the name. Otherwise a lock named a would wait for a lock named a/b.
var (
	escapes   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescapes = strings.NewReplacer("%25", "%", "%2F", "/")
)

func escape(name string) string   { return escapes.Replace(name) }
func unescape(name string) string { return unescapes.Replace(name) }
