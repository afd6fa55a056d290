package kvstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Bucket is a key-value service in which New stores locks. All clients of a bucket exclude each
// other, and nothing else may use the bucket. Each method returns soon after its ctx ends. All
// methods are safe for concurrent use. Package buckettest tests a Bucket.
//
// Keys consist of letters, digits, and "=._-". They do not begin or end with a full stop. A name
// with 512 ASCII letters needs a key of 517 bytes. A letter, a digit, "_" or "-" in a name takes
// one byte in the key; any other byte takes three.
type Bucket interface {
	// Get returns a key's value, as the last successful Swap by any client wrote it: a stale read is
	// not allowed. If there is no value, Value.Revision is 0.
	Get(ctx context.Context, key string) (Value, error)

	// Swap is a compare-and-swap: it writes a value, or deletes the key if the value is nil. It does
	// so only if the key still has this revision; 0 means no value. Otherwise it returns ErrConflict
	// and changes nothing. After any other error the outcome is unknown. Swap must not repeat a
	// request that got no reply: the first request may have changed the revision, so the repeated
	// request would return ErrConflict.
	//
	// A key must never get the same revision twice, not even after the key was deleted. Otherwise a
	// late Swap could erase a valid lease.
	Swap(ctx context.Context, key string, value []byte, revision uint64) error

	// Watch calls on() when it begins to watch the key, and soon after each later change to the key. A
	// single call can report several changes. Watch returns when ctx ends, or with an error after it
	// lost its connection; then the store calls Watch again. The calls are hints: a lost call costs
	// only latency. But if the first call is missing, the store detects each grant to a waiter only by
	// polling.
	Watch(ctx context.Context, key string, on func()) error

	// List calls on(key) for each key that begins with prefix, from a single goroutine.
	List(ctx context.Context, prefix string, on func(key string)) error

	// Now returns the time of the service's clock, with a resolution of 1 ms or better. Leases expire
	// by this clock only, so clients' clocks may differ. The returned time must lie between the start
	// and the end of the call.
	Now(ctx context.Context) (time.Time, error)
}

// A Value is a key's value.
type Value struct {
	Bytes    []byte
	Revision uint64 // each Swap of the key sets a new revision; 0: there is no value
}

// ErrConflict means that a key's revision differs from the revision passed to Swap.
var ErrConflict = errors.New("the key has changed")

// New returns a store in a bucket. The store never closes the bucket. With nil, or a nil pointer,
// each store call returns driver.ErrInvalid.
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
