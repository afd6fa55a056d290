package redisconn

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Broken reports whether an open connection ended with err; others opened at the same time can also
// have ended. It returns false for a timeout, which does not affect other connections, and for a
// connection that could not be opened.
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

// Unopened reports whether err means a failure to open a connection. It returns false for joined
// errors: any of them can belong to a sent request.
func Unopened(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if op, ok := err.(*net.OpError); ok { //nolint:errorlint // the loop unwraps; joined errors must not match
			return op.Op == "dial"
		}
	}
	return false
}
