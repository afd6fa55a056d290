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
	handshake time.Time                             // the first answer should come until then
	rest      int                                   // how many bytes of the first answer are still to be read
	first     []byte                                // of the first answer
	timeout   func(id int64, d time.Duration) error // is called with the session's ID and timeout
	heard     func()                                // is called when bytes arrive
	restored  <-chan struct{}                       // closed when the library restored its watches
	restore   func()                                // closes it
	disarm    func()                                // records that the library has no watches
	answered  atomic.Bool                           // the first answer came
	events    eventReader                           // for the reading goroutine
}

// firstBytes are those of the length, the protocol's version and the timeout, as 32-bit numbers, and
// of the session's ID.
const (
	firstBytes  = 20
	lengthBytes = 4
)

// awaitRestore lets the library restore its watches before it reads an answer: it reads the last known
// zxid for that without a lock, while answers change it.
func (w *wire) awaitRestore() {
	const limit = time.Second
	select {
	case <-w.restored:
		return
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.restored:
	case <-timer.C:
		w.disarm()
		w.restore()
	}
}

// Write recognises the request that restores watches.
func (w *wire) Write(b []byte) (int, error) {
	const setWatches = 101
	if len(b) >= 3*lengthBytes && binary.BigEndian.Uint32(b[2*lengthBytes:]) == setWatches {
		defer w.restore()
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	if w.answered.Load() && w.rest <= 0 {
		w.awaitRestore()
	}
	n, err := w.Conn.Read(b)
	w.rest -= n
	if n > 0 {
		w.heard()
		w.events.read(b[:n])
	}
	if !w.answered.Load() {
		w.first = append(w.first, b[:n]...)
		if len(w.first) >= firstBytes {
			timeout := time.Duration(int32(binary.BigEndian.Uint32(w.first[8:]))) * time.Millisecond
			if err := w.timeout(int64(binary.BigEndian.Uint64(w.first[12:])), timeout); err != nil {
				return 0, err
			}
			w.answered.Store(true)
			w.rest = lengthBytes + int(binary.BigEndian.Uint32(w.first)) - len(w.first)
			w.first = nil
		}
	}
	return n, err
}

// SetReadDeadline limits the wait for the first answer. The library's limit is a multiple of the
// timeout that was asked for: some milliseconds to learn the shortest timeout, or some minutes for a
// server that is stopped.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.answered.Load() {
		t = w.handshake
	}
	return w.Conn.SetReadDeadline(t)
}

// SetWriteDeadline limits the first request in the same way.
func (w *wire) SetWriteDeadline(t time.Time) error {
	if !w.answered.Load() {
		t = w.handshake
	}
	return w.Conn.SetWriteDeadline(t)
}
