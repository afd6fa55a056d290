package redistest

import "strings"

const slots = 16384

// Slot returns a key's cluster slot: the CRC-16 (XMODEM) of its hash tag. The hash tag is the text
// between the first "{" and the next "}", or the whole key if this text is empty or missing.
func Slot(key string) int {
	key = hashTag(key)
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int(crc % slots)
}

func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
