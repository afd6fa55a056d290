package redistest

import "strings"

const slots = 16384

// Slot is the cluster slot of a key: the CRC-16 (XMODEM) of its hash tag, which
// is what stands between the first "{" and the next "}" if that is not empty, or
// else of all of it.
func Slot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
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
