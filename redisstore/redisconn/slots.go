package redisconn

import (
	"strconv"
	"sync"
)

// SlotCount is the number of slots.
const SlotCount = 16384

// KeyText is a key as a string or as bytes: the hot path reads it from a buffer.
type KeyText interface{ ~string | ~[]byte }

// HashTag returns the part that determines a key's slot. It is the text between the first { and the
// next }, or the whole key if there is no such text or it is empty.
func HashTag[T KeyText](key T) T {
	open := index(key, '{', 0)
	if open < 0 {
		return key
	}
	end := index(key, '}', open)
	if end <= open+1 {
		return key
	}
	return key[open+1 : end]
}

func index[T KeyText](s T, c byte, from int) int {
	for i := from; i < len(s); i++ {
		if s[i] == c {
			return i
		}
	}
	return -1
}

// SlotOf returns a key's slot.
func SlotOf[T KeyText](key T) int { return int(crc16(HashTag(key))) % SlotCount }

// KeyOfSlot returns some key for a slot. It tries about as many keys as there are slots.
func KeyOfSlot(slot int) string {
	for i := 0; ; i++ {
		if key := strconv.Itoa(i); SlotOf(key) == slot {
			return key
		}
	}
}

// crc16 is the XMODEM variant, which Redis Cluster uses.
func crc16[T KeyText](s T) uint16 {
	table := crcTable()
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ table[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = sync.OnceValue(func() *[256]uint16 {
	var table [256]uint16
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return &table
})
