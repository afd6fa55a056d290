package zkstore

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// A wire is a connection to a server. It reads the session's timeout in the first answer: the library
// does not tell it, and servers change it without an error.
type wire struct {
	net.Conn
	handshake time.Time           // the first answer should come until then
	first     []byte              // of the first answer
	timeout   func(time.Duration) // is called with the timeout
	heard     func()              // is called when bytes arrive
	answered  atomic.Bool         // the first answer came
}

// firstBytes are those of the length, the protocol's version and the timeout, as 32-bit numbers.
const firstBytes = 12

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.heard()
	}
	if !w.answered.Load() {
		w.first = append(w.first, b[:n]...)
		if len(w.first) >= firstBytes {
			w.answered.Store(true)
			w.timeout(time.Duration(int32(binary.BigEndian.Uint32(w.first[8:firstBytes]))) * time.Millisecond)
			w.first = nil
		}
	}
	return n, err
}

// SetReadDeadline limits the wait for the first answer: the library would wait for some minutes for
// a server that is stopped, and the session would end.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.answered.Load() && (t.IsZero() || t.After(w.handshake)) {
		t = w.handshake
	}
	return w.Conn.SetReadDeadline(t)
}
