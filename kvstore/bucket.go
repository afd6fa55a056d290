package kvstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Bucket is a key-value service, as a store of locks needs it. All clients that use one bucket
// exclude each other, and nothing else uses it. Each method returns soon after its ctx ends. All are
// safe for concurrent use. Package buckettest checks all this.
//
// Keys consist of letters, digits, and "=._-". They do not begin or end with a full stop. A name of
// 512 bytes of ASCII letters has a key of 517 bytes; each other byte takes three.
type Bucket interface {
	// Get returns the value of a key. It reads what the last Swap of any client has written.
	// Revision 0 means that the key has no value.
	Get(ctx context.Context, key string) (Value, error)

	// Swap writes a value, or deletes the key if the value is nil. It does so only if the key
	// still has this revision; otherwise it returns ErrConflict and has changed nothing. Any
	// other error means that the outcome is unknown. So Swap does not repeat a request that had
	// no reply: the repeated one may find what the first one has written.
	//
	// A revision never comes again for a key, not even after the key was deleted. Otherwise a Swap
	// that arrives late could erase a valid lease.
	Swap(ctx context.Context, key string, value []byte, revision uint64) error

	// Watch calls on once when it begins to watch the key, and soon after each change of the key
	// from then on. Several changes may be one call. Watch returns when ctx ends, or with an
	// error when it has lost its connection; the store calls it again then. A call is a hint: a
	// lost one costs latency only. Without the first one, each hand-off waits for a poll.
	Watch(ctx context.Context, key string, on func()) error

	// List calls on with each key that begins with a prefix, from one goroutine.
	List(ctx context.Context, prefix string, on func(key string)) error

	// Now returns the time by the one clock that judges expiry: that of the service. It is read
	// between the call and the return, and has milliseconds. The clocks of two clients are never
	// compared.
	Now(ctx context.Context) (time.Time, error)
}

// A Value is what a key has.
type Value struct {
	Bytes    []byte
	Revision uint64 // each Swap of the key gives it a new one; 0: there is no value
}

// ErrConflict means that a key has another revision than the caller of Swap expects.
var ErrConflict = errors.New("the key has changed")

// New returns a store in a bucket. The bucket stays the caller's. With nil, or a nil pointer, each
// call of the store returns driver.ErrInvalid.
func New(b Bucket) *Store {
	if driver.IsNil(b) {
		return &Store{tables: noTables{"kvstore.New: the Bucket is nil"}, groups: eachAlone}
	}
	return &Store{tables: &service{bucket: b}, groups: eachAlone}
}

// eachAlone divides names into groups of one, in one order for all clients: a Swap changes one key.
func eachAlone(names []string) (groups [][]string) {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	for name := range slices.Chunk(sorted, 1) {
		groups = append(groups, name)
	}
	return groups
}

// The keys of a bucket.
const (
	lockPrefix  = "lock."  // the state of a name
	inboxPrefix = "inbox." // the events of a client
	fenceKey    = "fence"  // the fence high-water mark of the names without a key
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

// decodeKey returns the text of a key, or false if encodeKey did not make it.
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
