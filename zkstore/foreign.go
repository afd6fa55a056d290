package zkstore

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

var _ driver.ForeignRevoker = (*Store)(nil)

// wrongType returns the error for a znode that has a child of another kind.
func wrongType(path, child string) error {
	return &driver.WrongTypeError{State: driver.State{Foreign: &driver.Foreign{
		Key: path, Type: "znode", Kind: "it has the child " + child, Remaining: -1,
		Advice: "use another name: this is no lock, or one of another form, such as Curator's InterProcessSemaphoreV2",
	}}}
}

// A foreignMark identifies a foreign lock. A later lock has another sequence number.
type foreignMark struct {
	path  string
	czxid int64
}

// describeForeign describes a foreign holder.
func (s *Store) describeForeign(name string, d detail) *driver.Foreign {
	path := s.keys.entry(name, d.name)
	f := &driver.Foreign{
		Key: path, Type: "znode", Kind: kindOf(d.name), Remaining: driver.WaiterTTL, Lock: true, Mark: foreignMark{path, d.stat.Czxid},
		Advice: "wait until its holder releases it or its session ends; or end it: dibs unlock NAME --force --reason TEXT; its program does not notice that",
	}
	if d.stat.EphemeralOwner == 0 {
		f.Remaining = -1
		f.Advice = "it never expires, so it may be data; find the program that wrote it; if that has ended: dibs unlock NAME --force --reason TEXT"
	}
	return f
}

// kindOf returns the library that names its znodes so.
func kindOf(name string) string {
	switch {
	case strings.Contains(name, "__READ__"), strings.Contains(name, "__WRIT__"):
		return "Curator InterProcessReadWriteLock"
	case strings.Contains(name, "__rlock__"), strings.Contains(name, "__lock__"):
		return "kazoo Lock"
	case strings.Contains(name, "-lock-"):
		return "Curator InterProcessMutex"
	default:
		return "sequential znode"
	}
}

// labelOf returns the text in a foreign entry if it can be a label: Curator and kazoo write an
// address or a name.
func labelOf(data []byte) string {
	const longest = 128
	text := string(data)
	if len(text) > longest || !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool { return c == ' ' || !unicode.IsPrint(c) }) {
		return ""
	}
	return text
}

// RevokeForeign implements driver.ForeignRevoker. It deletes the lock's znode, as the lock's own
// library does. The program with the lock does not notice the end, unless it reads its znode.
func (s *Store) RevokeForeign(ctx context.Context, name string, seen driver.Foreign) (did string, err error) {
	const op = "revoke"
	if err := driver.CheckName(name); err != nil {
		return "", err
	}
	mark, ok := seen.Mark.(foreignMark)
	if !ok || s == nil || !strings.HasPrefix(mark.path, s.keys.queue(name)+"/") {
		return "", invalid("%s %q: not a foreign lock that dibs can end", op, name)
	}
	ctx, cancel, err := s.begin(ctx, op, name, noLimit)
	if err != nil {
		return "", err
	}
	defer cancel()
	removed, err := s.removeForeign(ctx, mark)
	switch {
	case err != nil:
		return "", unavailable(op, name, err)
	case !removed:
		return "", nil
	}
	return "deleted the znode " + mark.path, nil
}

func (s *Store) removeForeign(ctx context.Context, mark foreignMark) (bool, error) {
	l, err := s.sessions.get(ctx)
	if err != nil {
		return false, err
	}
	exists, err := call(ctx, l, func(c *zk.Conn) (*zk.Stat, error) {
		exists, stat, err := c.Exists(mark.path)
		if !exists {
			stat = nil
		}
		return stat, err
	})
	if err != nil || exists == nil || exists.Czxid != mark.czxid {
		return false, err
	}
	return l.remove(ctx, mark.path, -1)
}
