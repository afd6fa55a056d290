package zkstore

import (
	"encoding/binary"
	"testing"
)

// message returns what a server sends, with a body of some bytes.
func message(number int32, zxid int64, body int) []byte {
	const header = 16 // number, zxid, error
	m := binary.BigEndian.AppendUint32(nil, uint32(header+body))
	m = binary.BigEndian.AppendUint32(m, uint32(number))
	m = binary.BigEndian.AppendUint64(m, uint64(zxid))
	return append(m, make([]byte, 4+body)...)
}

// Events should be found among other messages, however these are split.
func TestEventReader(t *testing.T) {
	var sent []byte
	for _, m := range [][]byte{message(1, 5, 30), message(eventNumber, 7, 40), message(-2, 8, 0), message(2, 9, 1000)} {
		sent = append(sent, m...)
	}
	for size := 1; size <= len(sent); size++ {
		var r eventReader
		for rest := sent; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			r.read(rest[:min(size, len(rest))])
		}
		if r.zxid != 7 || r.rest != 0 || len(r.head) != 0 {
			t.Fatalf("%d bytes at a time: %+v, want the zxid 7 and no rest", size, r)
		}
	}
}
