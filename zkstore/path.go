package zkstore

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// A layout names the znodes. All paths begin with the prefix.
//
//	/locks/orders/_c_…-1.1.0-lock-0000000007   an entry in the wait queue for the name orders
//	/locks/%base                               the number that fences are counted from
//	/locks/%clock                              written to read the leader's clock
//	/locks/%letters/CLIENT-0000000003          a revocation, for a client
//
// No escaped name begins with a percent sign and a small letter.
type layout struct{ prefix string }

func (l layout) queue(name string) string       { return l.prefix + "/" + escape(name) }
func (l layout) entry(name, node string) string { return l.queue(name) + "/" + node }

// size is about that of an entry's path.
func (l layout) size(name string) int { return len(l.queue(name)) + 64 }

func (l layout) base() string    { return l.prefix + "/%base" }
func (l layout) clock() string   { return l.prefix + "/%clock" }
func (l layout) letters() string { return l.prefix + "/%letters" }

// nameOf returns the name of a znode below the prefix, or false if it is no name's.
func (l layout) nameOf(node string) (name string, ok bool) {
	name = unescape(node)
	return name, escape(name) == node
}

// checkPrefix returns ErrInvalid for a prefix that is no path of a znode.
func checkPrefix(prefix string) error {
	switch {
	case !strings.HasPrefix(prefix, "/") || prefix == "/" || path.Clean(prefix) != prefix:
		return invalid("the prefix %q: want a path such as /locks", prefix)
	case strings.ContainsFunc(prefix, isForbidden):
		return invalid("the prefix %q: a character that ZooKeeper does not accept", prefix)
	}
	return nil
}

// isForbidden reports whether ZooKeeper accepts no path with a character.
func isForbidden(r rune) bool {
	return r < 0x20 || 0x7f <= r && r <= 0x9f || 0xd800 <= r && r <= 0xf8ff || r >= 0xfff0
}

// escape returns the znode of a name. Letters stay as they are, so that other programs can lock the
// same znode.
func escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	clean := func(r rune) bool { return r != '%' && r != '/' && !isForbidden(r) }
	if utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return !clean(r) }) < 0 {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(name[i:])
		}
		if clean(r) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(name[i : i+size]) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape is the reverse of escape. For a text that escape does not return, it returns any text.
func unescape(node string) string {
	var b strings.Builder
	for i := 0; i < len(node); i++ {
		var c byte
		if node[i] == '%' && i+3 <= len(node) {
			if n, _ := fmt.Sscanf(node[i+1:i+3], "%02X", &c); n == 1 {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(node[i])
	}
	return b.String()
}
