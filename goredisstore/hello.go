package goredisstore

import (
	"bytes"
	"context"
	"net"
	"syscall"
)

// A Dialer is the type of redis.Options.Dialer.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// WithoutHello returns a Dialer for connections to a proxy that does not know HELLO, the
// command with which go-redis begins each connection. Its connections do not send it, and
// answer that it is unknown; go-redis then sends AUTH if there is a password. twemproxy
// would close the connection. Codis would pass HELLO on to a server, and drop its own
// connection to that server for the reply. dial is usually redis.NewDialer(options). Also
// set Protocol to 2, DisableIdentity, and no ClientName.
func WithoutHello(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		answering := &answeringConn{Conn: conn}
		// go-redis looks at the socket of an idle connection, if it can.
		if socket, ok := conn.(syscall.Conn); ok {
			return socketConn{answering, socket}, nil
		}
		return answering, nil
	}
}

// An answeringConn answers HELLO itself if that is the first command. go-redis writes it at
// once and then waits for the reply.
type answeringConn struct {
	net.Conn
	begun  bool
	answer []byte // what is left of it
}

type socketConn struct {
	*answeringConn
	syscall.Conn
}

// Write implements net.Conn.
func (c *answeringConn) Write(b []byte) (int, error) {
	isFirst := !c.begun
	c.begun = true
	if isFirst && isHello(b) {
		c.answer = []byte("-ERR unknown command 'HELLO'\r\n")
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *answeringConn) Read(b []byte) (int, error) {
	if len(c.answer) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

// isHello reports whether the first word of a command is HELLO.
func isHello(command []byte) bool {
	_, words, _ := bytes.Cut(command, []byte("\r\n"))
	_, words, _ = bytes.Cut(words, []byte("\r\n"))
	word, _, _ := bytes.Cut(words, []byte("\r\n"))
	return bytes.EqualFold(word, []byte("HELLO"))
}
