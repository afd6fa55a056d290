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
	first     []byte                                // of the first answer
	timeout   func(id int64, d time.Duration) error // is called with the session's ID and timeout
	heard     func()                                // is called when bytes arrive
	arms      func(watchKey) bool                   // reports whether a read should arm a watch
	answered  atomic.Bool                           // the first answer came
	events    eventReader                           // for the reading goroutine
}

// firstBytes are those of the length, the protocol's version and the timeout, as 32-bit numbers, and
// of the session's ID.
const (
	firstBytes  = 20
	lengthBytes = 4
)

// Write arms watches: it sets the mark in a read that should arm one.
//
// The library could arm them itself. But to restore its watches after a reconnection, it reads its last
// zxid without a lock, while answers change it: a data race, and perhaps a lost event. So the library
// knows of no watch, and after a reconnection the store reads again.
func (w *wire) Write(b []byte) (int, error) {
	if key, ok := watchable(b); ok && w.arms(key) {
		b = append([]byte(nil), b...) // it is the library's
		b[len(b)-1] = 1
	}
	return w.Conn.Write(b)
}

// watchable reports whether a request can arm a watch, and which one. Such a request consists of four
// numbers, its length, its own number, the operation and the path's length, of the path, and of the
// mark.
func watchable(b []byte) (watchKey, bool) {
	const (
		getData, getChildren = 4, 12
		pathAt               = 4 * lengthBytes
	)
	if len(b) <= pathAt {
		return watchKey{}, false
	}
	operation, size := binary.BigEndian.Uint32(b[2*lengthBytes:]), binary.BigEndian.Uint32(b[3*lengthBytes:])
	if operation != getData && operation != getChildren || uint64(size)+pathAt+1 != uint64(len(b)) {
		return watchKey{}, false
	}
	return watchKey{string(b[pathAt : len(b)-1]), operation == getChildren}, true
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
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
