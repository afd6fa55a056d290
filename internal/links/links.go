// Package links tells errors of connections apart.
package links

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Broken reports whether a connection that was open has ended: others that were made
// with it may have ended too. A timeout says nothing of others, and a connection that
// could not be made is none.
func Broken(err error) bool {
	var op *net.OpError
	switch {
	case err == nil:
		return false
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed):
		return true
	case errors.As(err, &op):
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
