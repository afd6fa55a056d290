package zktest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// A sender is the SOCKS proxy of a member (RFC 1928).
type sender struct {
	listener net.Listener
	links    []*link // to each member
}

func newSender(peers []peer) (*sender, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sender{listener: listener}
	for _, peer := range peers {
		s.links = append(s.links, &link{peer: peer})
	}
	go s.serve()
	return s, nil
}

func (s *sender) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// serve accepts connections until the listener is closed.
func (s *sender) serve() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.connect(conn)
	}
}

// connect connects the member with another member, and forwards between them. During a cut the
// member waits, as for a lost packet. If the other member refuses, the connection ends.
func (s *sender) connect(conn net.Conn) {
	defer conn.Close()
	port, err := handshake(conn)
	if err != nil {
		return
	}
	l := s.link(port)
	if l == nil {
		return
	}
	l.wait()
	recipient, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer recipient.Close()
	connected := []byte{socks5, 0, 0, ipv4, 0, 0, 0, 0, 0, 0}
	if _, err := conn.Write(connected); err == nil {
		l.forward(conn, recipient)
	}
}

// link returns the link to the member that listens on a port, or nil.
func (s *sender) link(port int) *link {
	for _, l := range s.links {
		if port == l.leading || port == l.electing {
			return l
		}
	}
	return nil
}

const (
	socks5 = 5
	open   = 1 // the command to open a connection
	ipv4   = 1 // the type of an address
)

// handshake reads the member's request, and returns the port that it wants to reach.
func handshake(conn net.Conn) (port int, err error) {
	hello := make([]byte, 2) // and the list of supported authentications
	if _, err := io.ReadFull(conn, hello); err != nil {
		return 0, err
	}
	if _, err := io.CopyN(io.Discard, conn, int64(hello[1])); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte{socks5, 0}); err != nil { // no authentication
		return 0, err
	}
	request := make([]byte, 10)
	if _, err := io.ReadFull(conn, request); err != nil {
		return 0, err
	}
	if [4]byte(request) != [4]byte{socks5, open, 0, ipv4} {
		return 0, fmt.Errorf("unknown request: %v", request)
	}
	return int(binary.BigEndian.Uint16(request[8:])), nil
}
