package zkstore

import (
	"encoding/binary"
	"net"
	"testing"
)

// A sink is a connection that keeps what is written.
type sink struct {
	net.Conn
	written []byte
}

func (s *sink) Write(b []byte) (int, error) {
	s.written = append(s.written, b...)
	return len(b), nil
}

// newRead returns a request of the library that reads a znode or its children.
func newRead(operation uint32, path string) []byte {
	body := binary.BigEndian.AppendUint32(nil, 7)
	body = binary.BigEndian.AppendUint32(body, operation)
	body = binary.BigEndian.AppendUint32(body, uint32(len(path)))
	body = append(append(body, path...), 0)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// A read that should arm a watch has the mark, and the next one has not. Other requests stay as they
// are.
func TestReadsArmWatches(t *testing.T) {
	l := newTestSession().link
	for _, c := range []struct {
		name    string
		key     watchKey
		request []byte
		arms    bool
	}{
		{"data", watchKey{"/locks/n", false}, newRead(4, "/locks/n"), true},
		{"children", watchKey{"/locks/n", true}, newRead(12, "/locks/n"), true},
		{"data of a znode with a watch of its children", watchKey{"/locks/n", true}, newRead(4, "/locks/n"), false},
		{"another znode", watchKey{"/locks/m", false}, newRead(4, "/locks/n"), false},
		{"a deletion", watchKey{"/locks/n", false}, newRead(2, "/locks/n"), false},
		{"a ping", watchKey{"/locks/n", false}, newRead(4, "/locks/n")[:12], false},
		{"a wrong length", watchKey{"/locks/n", false}, newRead(4, "/locks/n")[:20], false},
	} {
		l.arming = nil
		l.arm(c.key)
		conn := &sink{}
		w := &wire{Conn: conn, arms: l.arms}
		original := string(c.request)
		for _, arms := range []bool{c.arms, false} {
			conn.written = nil
			if n, err := w.Write(c.request); n != len(c.request) || err != nil {
				t.Fatalf("%s: %d bytes, %v", c.name, n, err)
			}
			want := []byte(original)
			if arms {
				want[len(want)-1] = 1
			}
			if string(conn.written) != string(want) || string(c.request) != original {
				t.Errorf("%s: wrote %q, want %q", c.name, conn.written, want)
			}
		}
	}
}
