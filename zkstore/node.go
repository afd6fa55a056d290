package zkstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// A node is the name of an entry's znode, in its parts:
//
//	_c_7f3a…-1.1.0-lock-0000000007       format Curator
//	7f3a…-1.1.0__lock__0000000007        format Kazoo
//
// The first part identifies the owner's token. Then come the weight, its limit and the number of
// moves. A p follows if the znode is persistent, or an r if it reserves the name. A move is a new
// znode in the place of the old one, with the same sequence number: to another session, or with
// another weight.
type node struct {
	id         string // empty: another program's entry
	weight     int
	limit      int
	moves      int
	persistent bool
	reserved   bool // also persistent
	seq        int32
}

const (
	curatorPrefix = "_c_"
	idLength      = 32 // as in a UUID without hyphens
	seqLength     = 10
)

// idOf returns the part of a znode's name that identifies a token.
func idOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:idLength/2])
}

// separators are the texts before the sequence number.
type separators struct{ lock, reader, writer string }

var formats = map[NodeFormat]separators{
	Curator: {"-lock-", "-__READ__", "-__WRIT__"},
	Kazoo:   {"__lock__", "__rlock__", "__lock__"},
}

// prefixOf returns a node's name without its sequence number.
func (f NodeFormat) prefixOf(n node) string {
	sep := formats[f].lock
	switch {
	case n.limit == driver.Unlimited && n.weight == 1:
		sep = formats[f].reader
	case n.limit == driver.Unlimited && n.weight == n.limit:
		sep = formats[f].writer
	}
	mark, start := "", ""
	switch {
	case n.reserved:
		mark = "r"
	case n.persistent:
		mark = "p"
	}
	if f == Curator {
		start = curatorPrefix
	}
	return fmt.Sprintf("%s%s-%d.%d.%d%s%s", start, n.id, n.weight, n.limit, n.moves, mark, sep)
}

// nameOf returns a node's name.
func (f NodeFormat) nameOf(n node) string { return f.prefixOf(n) + fmt.Sprintf("%010d", n.seq) }

// parseNode reads a znode's name. It returns false if the name has no sequence number, so it is no
// entry of any library.
func parseNode(name string) (n node, ok bool) {
	rest, seq, ok := cutSeq(name)
	if !ok {
		return node{}, false
	}
	n, ok = parseOwn(rest)
	if !ok {
		n = node{weight: 1, limit: 1}
		if strings.HasSuffix(rest, "__READ__") || strings.HasSuffix(rest, "__rlock__") {
			n.limit = driver.Unlimited
		}
	}
	n.seq = seq
	return n, true
}

// cutSeq cuts the sequence number off. After 2^31 znodes it is negative.
func cutSeq(name string) (rest string, seq int32, ok bool) {
	at := len(name) - seqLength
	if at < 0 {
		return "", 0, false
	}
	if at > 1 && name[at-1] == '-' && name[at] != '0' && (name[at-2] == '-' || name[at-2] == '_') {
		at-- // the sign: a separator before it ends with - or _
	}
	number, err := strconv.ParseInt(name[at:], 10, 32)
	return name[:at], int32(number), err == nil && name[at] != '+'
}

// parseOwn reads the parts before the sequence number of an entry of dibs.
func parseOwn(rest string) (n node, ok bool) {
	rest = strings.TrimPrefix(rest, curatorPrefix)
	if len(rest) < idLength+len("-1.1.0") || rest[idLength] != '-' || strings.Trim(rest[:idLength], "0123456789abcdef") != "" {
		return node{}, false
	}
	n.id, rest = rest[:idLength], rest[idLength+1:]
	end := strings.IndexAny(rest, "-_")
	if end < 0 {
		return node{}, false
	}
	text, reserved := strings.CutSuffix(rest[:end], "r")
	text, persistent := strings.CutSuffix(text, "p")
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return node{}, false
	}
	var numbers [3]int
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return node{}, false
		}
		numbers[i] = int(number)
	}
	n.weight, n.limit, n.moves = numbers[0], numbers[1], numbers[2]
	n.persistent, n.reserved = persistent || reserved, reserved
	return n, 1 <= n.weight && n.weight <= n.limit
}

func (n node) exclusive() bool { return n.weight == n.limit }

func (n node) foreign() bool { return n.id == "" }
