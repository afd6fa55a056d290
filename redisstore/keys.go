package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/slots"
)

// The keys of one lock. All are in the lock key's hash slot, on a cluster or not.
const (
	queueSuffix   = ":dibs:queue"
	metaSuffix    = ":dibs:meta"
	holdersSuffix = ":dibs:holders"
	auxSeparator  = ":" // before the suffixes, so that {a} and a do not share keys
	fencePrefix   = "dibs:fence:"
	channelPrefix = "dibs:c:"
)

// keys are the five keys of a lock, written one after another into one text, with the
// offset of each.
type keys struct {
	text                             []byte
	lock, end                        int // the lock key is part of the queue's key
	meta, holders, highwater, length int
	slot                             int // of all five keys
}

// appendKeys writes the keys of a name to b. An auxiliary key is the lock key with a
// suffix. The lock key is put in braces; if it has a hash tag of its own, a colon follows
// it instead.
func (s *Store) appendKeys(b []byte, name string) keys {
	b = append(append(append(b, '{'), s.prefix...), name...)
	k := keys{lock: 1, end: len(b)}
	braced := !tagged(b[1:])
	if braced {
		b = append(b, '}')
	} else {
		b = append(b[:0], b[1:]...)
		k.lock, k.end = 0, len(b)
		b = append(b, auxSeparator...)
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

// split returns the keys as parts of the text that they were written to.
func (k keys) split(text string) (lock, queue, meta, highwater, holders string) {
	return text[k.lock:k.end], text[:k.meta], text[k.meta:k.holders], text[k.highwater:k.length], text[k.holders:k.highwater]
}

// checkKey rejects a lock key whose auxiliary keys would be in another slot, or that
// could be an auxiliary key itself.
func checkKey(key string) error {
	switch {
	case key == nodeKey, strings.HasPrefix(key, fencePrefix), strings.HasSuffix(key, queueSuffix), strings.HasSuffix(key, metaSuffix),
		strings.HasSuffix(key, holdersSuffix):
		return fmt.Errorf("%w: key %q is an auxiliary key of dibs", driver.ErrInvalid, key)
	case strings.Contains(key, "}") && !tagged(key):
		return fmt.Errorf("%w: key %q contains a } but no {hash tag}: its queue would be in another slot", driver.ErrInvalid, key)
	}
	return nil
}

// tagged reports whether a key has a hash tag.
func tagged[T slots.Text](key T) bool { return len(slots.Hashed(key)) < len(key) }

// slotTag returns the smallest number whose decimal digits hash to a slot: the hash tag
// of the slot's fence high-water mark, the same in every implementation.
func slotTag(slot int) uint32 { return slotTags()[slot] - 1 }

var slotTags = sync.OnceValue(func() *[slots.Count]uint32 {
	var tags [slots.Count]uint32 // the number + 1; zero means not found yet
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
