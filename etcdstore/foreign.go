package etcdstore

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var _ driver.ForeignRevoker = (*Store)(nil)

// Kinds of foreign entries.
const (
	isLock     = "etcd lock"     // of concurrency.Mutex, etcdctl lock, or etcd's lock service
	isElection = "etcd election" // of concurrency.Election, etcdctl elect, or etcd's election service
	isValue    = "value"         // of a program that does not lock, or of a library that etcd's tools do not know
)

// recognise returns a foreign entry's kind and label. The last part of a key of etcd's own tools is
// its lease in hexadecimal. A lock has no value. An election's value describes the candidate to all
// others, as a label does.
func recognise(id string, kv *mvccpb.KeyValue) (kind, label string) {
	switch {
	case kv.Lease == 0 || id != strconv.FormatInt(kv.Lease, 16):
		return isValue, ""
	case len(kv.Value) == 0:
		return isLock, ""
	case len(kv.Value) > longestLabel || !isPlain(string(kv.Value)):
		return isElection, ""
	}
	return isElection, string(kv.Value)
}

// longestLabel is the length of the longest label, in bytes.
const longestLabel = 128

// isPlain reports whether a text is printable UTF-8 without spaces.
func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return c == ' ' || !unicode.IsPrint(c) })
}

// A foreignMark identifies a foreign lock. A later lock has another revision.
type foreignMark struct {
	key     string
	created int64
}

// describeForeign describes a foreign holder.
func describeForeign(e entry, remaining time.Duration) *driver.Foreign {
	f := &driver.Foreign{Key: e.key, Type: isValue, Kind: e.kind, Remaining: remaining, Lock: e.kind != isValue}
	switch {
	case f.Lock:
		f.Mark = foreignMark{e.key, e.created}
		f.Advice = "wait until its holder releases it or it expires; or end it: dibs unlock NAME --force --reason TEXT; its program does not notice that"
	case f.NeverExpires():
		f.Advice = "it never expires, so it may be data; find the program that wrote it; if that has ended, delete the key"
	default:
		f.Advice = "it is a value of another program; use another name or another prefix"
	}
	return f
}

// RevokeForeign implements driver.ForeignRevoker. It deletes the lock's key, as the lock's own
// library does. The lock's session stays, because other keys may need it. So the program with the
// lock does not notice the end, unless it reads its key.
func (s *Store) RevokeForeign(ctx context.Context, name string, seen driver.Foreign) (did string, err error) {
	const op = "revoke"
	if err := driver.CheckName(name); err != nil {
		return "", err
	}
	mark, ok := seen.Mark.(foreignMark)
	if !ok || s == nil || !strings.HasPrefix(mark.key, s.keys.queue(name)) {
		return "", invalid("%s %q: not a foreign lock that dibs can end", op, name)
	}
	ctx, cancel, err := s.begin(ctx, op, name, noLimit)
	if err != nil {
		return "", err
	}
	defer cancel()
	removed, err := s.remove(ctx, record{key: mark.key, created: mark.created})
	switch {
	case err != nil:
		return "", unavailable(op, name, err)
	case !removed:
		return "", nil
	}
	return "deleted the key " + mark.key, nil
}

// remainingOf returns when a holder expires at the latest without a renewal, or a negative number if
// it never expires. If etcd does not answer, it returns a guess.
func (s *Store) remainingOf(ctx context.Context, e entry) time.Duration {
	guess := driver.WaiterTTL
	if !e.foreign {
		guess = e.ttl()
	}
	if e.lease == clientv3.NoLease {
		return -1
	}
	reply, err := s.cli.TimeToLive(ctx, e.lease)
	if err != nil {
		return guess
	}
	left := time.Duration(max(reply.TTL, 0)+1) * time.Second // etcd rounds down
	if !e.foreign {
		left = min(left, guess)
	}
	return left
}
