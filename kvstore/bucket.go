package kvstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Bucket is a key-value service for a lock store. All clients of a bucket exclude each other, and
// nothing else may use it. Each method returns soon after its ctx ends. All are safe for concurrent
// use. Package buckettest checks all this.
//
// Keys consist of letters, digits, and "=._-". They do not begin or end with a full stop. A name
// with 512 ASCII letters needs a key of 517 bytes; any other byte in a name takes three.
type Bucket interface {
	// Get returns a key's value. It reads the value written by the last Swap, from any client.
	// Revision 0 means that there is no value.
	Get(ctx context.Context, key string) (Value, error)

	// Swap writes a value, or deletes the key if the value is nil. It does so only if the key is
	// still at this revision; otherwise it returns ErrConflict and changes nothing. Any other error
	// means that the outcome is unknown. So Swap must not repeat a request without a reply: the
	// repeated request could find the value written by the first.
	//
	// A revision never comes again for a key, not even after the key was deleted. Otherwise a late
	// Swap could erase a valid lease.
	Swap(ctx context.Context, key string, value []byte, revision uint64) error

	// Watch calls on once when it begins to watch the key, and soon after each later change to the
	// key. A single call can report several changes. Watch returns when ctx ends, or with an error
	// after it lost its connection; then the store calls it again. A call is a hint: a lost call
	// costs only latency. Without the first call, each hand-off waits for a poll.
	Watch(ctx context.Context, key string, on func()) error

	// List calls on with each key that begins with prefix, from a single goroutine.
	List(ctx context.Context, prefix string, on func(key string)) error

	// Now returns the service's time, the only clock for expiry, in milliseconds or better. The
	// clock is read between the call and the return. Two clients' clocks are never compared.
	Now(ctx context.Context) (time.Time, error)
}

// A Value is a key's value.
type Value struct {
	Bytes    []byte
	Revision uint64 // each Swap of the key sets a new revision; 0: there is no value
}

// ErrConflict means that a key's revision differs from the revision passed to Swap.
var ErrConflict = errors.New("the key has changed")

// New returns a store in a bucket. The bucket stays the caller's. With nil, or a nil pointer, each
// store call returns driver.ErrInvalid.
func New(b Bucket) *Store {
	if driver.IsNil(b) {
		return &Store{tables: noTables{"kvstore.New: the Bucket is nil"}, groups: eachAlone}
	}
	return &Store{tables: &service{bucket: b}, groups: eachAlone}
}

// eachAlone divides names into single-name groups, in the same order for all clients: a Swap
// changes a single key.
func eachAlone(names []string) (groups [][]string) {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	for name := range slices.Chunk(sorted, 1) {
		groups = append(groups, name)
	}
	return groups
}

// The keys in a bucket.
const (
	lockPrefix  = "lock."  // a name's state
	inboxPrefix = "inbox." // a client's events
	fenceKey    = "fence"  // the fence high-water mark for names without a key
)

// encodeKey returns a key for any text.
func encodeKey(prefix, text string) string {
	var key strings.Builder
	key.WriteString(prefix)
	for _, c := range []byte(text) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			key.WriteByte(c)
		default:
			key.Write([]byte{'=', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return key.String()
}

// decodeKey returns a key's text, or false if encodeKey did not make it.
func decodeKey(prefix, key string) (text string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", false
	}
	var b []byte
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		if c == '=' && i+2 < len(rest) {
			high, low := strings.IndexByte(hexDigits, rest[i+1]), strings.IndexByte(hexDigits, rest[i+2])
			c = byte(high<<4 | low)
			i += 2
		}
		b = append(b, c)
	}
	text = string(b)
	return text, encodeKey(prefix, text) == key
}

const hexDigits = "0123456789ABCDEF"
