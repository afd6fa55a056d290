package servicetest

import (
	"net"
	"sync"
)

// Pipes is a listener whose connections are in memory, as virtual time requires.
type Pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewPipes returns a listener.
func NewPipes() Pipes {
	closed := make(chan struct{})
	return Pipes{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

// Give gives the server a connection, and waits until it accepts it.
func (p Pipes) Give(conn net.Conn) { p.conns <- conn }

// Accept implements net.Listener.
func (p Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p Pipes) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (Pipes) Addr() net.Addr { return &net.UnixAddr{} }
