package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/slots"
)

// The keys of one lock. All lie in the lock key's hash slot, and are built so
// that they do whether or not the server shards.
const (
	queueSuffix   = ":dibs:queue"
	metaSuffix    = ":dibs:meta"
	holdersSuffix = ":dibs:holders"
	ownTag        = ":" // before these, so that {a} and a do not share them
	fencePrefix   = "dibs:fence:"
	channel       = "dibs:c:"
)

// keys are the five keys of a lock, written one after another into one text, and
// where each begins in it.
type keys struct {
	text                             []byte
	lock, end                        int // the lock key lies within the queue's
	meta, holders, highwater, length int
	slot                             int // of all of them
}

// appendKeys writes the keys of a name to b. An auxiliary key is the lock key with
// a suffix, and with braces around it or, if it has a hash tag of its own, a colon
// after it.
func (s *Store) appendKeys(b []byte, name string) keys {
	b = append(append(append(b, '{'), s.prefix...), name...)
	k := keys{lock: 1, end: len(b)}
	braced := !tagged(b[1:])
	if braced {
		b = append(b, '}')
	} else {
		b = append(b[:0], b[1:]...)
		k.lock, k.end = 0, len(b)
		b = append(b, ownTag...)
	}
	stem := len(b)
	b = append(b, queueSuffix...)
	k.meta = len(b)
	b = append(append(b, b[:stem]...), metaSuffix...)
	k.holders = len(b)
	b = append(append(b, b[:stem]...), holdersSuffix...)
	k.highwater = len(b)
	k.slot = slots.Of(b[k.lock:k.end])
	b = append(b, fencePrefix+"{"...)
	b = strconv.AppendUint(b, uint64(slotTag(k.slot)), 10)
	b = append(b, '}')
	k.length, k.text = len(b), b
	return k
}

// cut returns the keys as parts of the text that they were written to.
func (k keys) cut(text string) (lock, queue, meta, highwater, holders string) {
	return text[k.lock:k.end], text[:k.meta], text[k.meta:k.holders], text[k.highwater:k.length], text[k.holders:k.highwater]
}

// checkKey refuses a lock key whose auxiliary keys would lie in another slot, or
// that is such a key itself.
func checkKey(key string) error {
	switch {
	case key == nodeKey, strings.HasPrefix(key, fencePrefix), strings.HasSuffix(key, queueSuffix), strings.HasSuffix(key, metaSuffix),
		strings.HasSuffix(key, holdersSuffix):
		return fmt.Errorf("%w: key %q is one of dibs' own", driver.ErrInvalid, key)
	case strings.Contains(key, "}") && !tagged(key):
		return fmt.Errorf("%w: key %q: a } outside a {hash tag} cannot be placed in a cluster", driver.ErrInvalid, key)
	}
	return nil
}

// tagged reports whether a key has a hash tag.
func tagged[T slots.Text](key T) bool { return len(slots.Hashed(key)) < len(key) }

// slotTag names a slot by the smallest number whose decimal digits hash to it: the
// tag of the slot's fence highwater, the same in every implementation.
func slotTag(slot int) uint32 { return slotTags()[slot] - 1 }

var slotTags = sync.OnceValue(func() *[slots.Count]uint32 {
	var tags [slots.Count]uint32 // one more than the number, so that zero is none
	var digits [10]byte
	for left, n := slots.Count, uint32(0); left > 0; n++ {
		s := slots.Of(strconv.AppendUint(digits[:0], uint64(n), 10))
		if tags[s] == 0 {
			tags[s] = n + 1
			left--
		}
	}
	return &tags
})
