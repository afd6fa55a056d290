package redisconn

import (
	"strings"
	"testing"
)

func TestCRC16(t *testing.T) {
	for text, want := range map[string]uint16{"": 0, "123456789": 0x31c3} {
		if got := crc16(text); got != want {
			t.Errorf("crc16(%q) = %#x, want %#x", text, got, want)
		}
		if got := crc16([]byte(text)); got != want {
			t.Errorf("crc16 of the bytes of %q = %#x, want %#x", text, got, want)
		}
	}
}

// HashTag should agree with the Redis Cluster specification's examples, and similar keys.
func TestHashTag(t *testing.T) {
	for key, want := range map[string]string{
		"":                      "",
		"foo":                   "foo",
		"{user1000}.following":  "user1000",
		"{user1000}.followers":  "user1000",
		"foo{}{bar}":            "foo{}{bar}",
		"foo{{bar}}zap":         "{bar",
		"foo{bar}{zap}":         "bar",
		"{}":                    "{}",
		"{":                     "{",
		"}":                     "}",
		"}{":                    "}{",
		"}{a}":                  "a",
		"a{b":                   "a{b",
		"a}b":                   "a}b",
		"{a}":                   "a",
		"{{a}":                  "{a",
		"{a}b}":                 "a",
		"{ }":                   " ",
		"naïve{路}":              "路",
		"{a\x00b}\r\n{c}":       "a\x00b",
		strings.Repeat("{", 99): strings.Repeat("{", 99),
	} {
		if got := HashTag(key); got != want {
			t.Errorf("HashTag(%q) = %q, want %q", key, got, want)
		}
		if got := string(HashTag([]byte(key))); got != want {
			t.Errorf("HashTag, of the bytes of %q, = %q, want %q", key, got, want)
		}
	}
}

// The expected values are those from CLUSTER KEYSLOT.
func TestOf(t *testing.T) {
	for key, want := range map[string]int{
		"":                     0,
		"foo":                  12182,
		"bar":                  5061,
		"hello":                866,
		"123456789":            0x31c3,
		"user1000":             3443,
		"{user1000}.following": 3443,
		"foo{{bar}}zap":        4015,
		"{bar":                 4015,
	} {
		if got := SlotOf(key); got != want {
			t.Errorf("SlotOf(%q) = %d, want %d", key, got, want)
		}
	}
	if SlotOf("foo{}{bar}") == SlotOf("bar") {
		t.Error("foo{}{bar} is in the slot of bar: an empty tag must be ignored")
	}
}

func TestKeyOf(t *testing.T) {
	for slot := 0; slot < SlotCount; slot += 271 {
		if got := SlotOf(KeyOfSlot(slot)); got != slot {
			t.Errorf("KeyOfSlot(%d) is in slot %d", slot, got)
		}
	}
	if got := SlotOf(KeyOfSlot(SlotCount - 1)); got != SlotCount-1 {
		t.Errorf("KeyOfSlot of the last slot is in slot %d", got)
	}
}
