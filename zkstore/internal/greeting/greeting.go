// Package greeting opens a session of ZooKeeper to find out whether a server serves clients, and what
// timeouts it grants. Clients' libraries report neither.
package greeting

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"time"
)

// A Session is a server's reply.
type Session struct {
	Timeout  time.Duration // the nearest that the server grants; zero from most read-only servers
	ReadOnly bool          // the server has no majority
}

// ErrSilent means that a server ended the connection without a reply.
var ErrSilent = errors.New("the server ends the connection: it serves no client, for example because no majority of servers is connected, or TLS is on at one end only")

// ErrOther means that the reply is not that of ZooKeeper.
var ErrOther = errors.New("the reply is not that of ZooKeeper: another service, or TLS is on at one end only")

// notReadOnly is the error of a server that can only read.
const notReadOnly = -119

// Greet opens a session with a timeout, and closes it. A zero timeout asks for the shortest.
func Greet(conn net.Conn, timeout time.Duration) (Session, error) {
	const password = 16 // bytes of a session
	connect := make([]byte, 0, 64)
	connect = binary.BigEndian.AppendUint32(connect, 0)                                                          // the protocol
	connect = binary.BigEndian.AppendUint64(connect, 0)                                                          // the last change that it knows
	connect = binary.BigEndian.AppendUint32(connect, uint32(min(max(timeout.Milliseconds(), 1), math.MaxInt32))) // at least 1 ms
	connect = binary.BigEndian.AppendUint64(connect, 0)                                                          // a new session
	connect = binary.BigEndian.AppendUint32(connect, password)
	connect = append(connect, make([]byte, password)...)
	connect = append(connect, 1) // a read-only server may reply
	reply, err := exchange(conn, connect)
	if err != nil {
		return Session{}, err
	}
	const (
		refusal = 4 + 8 + 4     // request, change, error
		head    = 4 + 4 + 8 + 4 // protocol, timeout, session, length of the password
	)
	switch {
	case len(reply) == refusal && int32(binary.BigEndian.Uint32(reply[refusal-4:])) == notReadOnly:
		return Session{ReadOnly: true}, nil // without local sessions, it cannot open a session
	case len(reply) < head+password:
		return Session{}, ErrOther
	}
	s := Session{
		Timeout:  time.Duration(binary.BigEndian.Uint32(reply[4:])) * time.Millisecond,
		ReadOnly: len(reply) > head+password && reply[head+password] != 0,
	}
	return s, end(conn)
}

// end closes the session. Otherwise it would last until its timeout.
func end(conn net.Conn) error {
	const request, closeSession = 1, -11
	operation := int32(closeSession)
	text := binary.BigEndian.AppendUint32(nil, request)
	_, err := exchange(conn, binary.BigEndian.AppendUint32(text, uint32(operation)))
	if errors.Is(err, ErrSilent) { // some versions reply only by ending the connection
		return nil
	}
	return err
}

// exchange sends a packet and returns the next.
func exchange(conn net.Conn, packet []byte) ([]byte, error) {
	const longest = 1 << 10
	framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(packet))), packet...)
	if _, err := conn.Write(framed); err != nil {
		return nil, silence(err)
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(conn, size); err != nil {
		return nil, silence(err)
	}
	n := binary.BigEndian.Uint32(size)
	if n > longest {
		return nil, ErrOther
	}
	reply := make([]byte, n)
	if _, err := io.ReadFull(conn, reply); err != nil {
		return nil, silence(err)
	}
	return reply, nil
}

// silence explains a connection that ends. Other errors, such as a timeout, explain themselves.
func silence(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return ErrSilent
	}
	return err
}
