package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

func TestBroken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.EOF, true},
		{fmt.Errorf("redis: %w", io.ErrUnexpectedEOF), true},
		{net.ErrClosed, true},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, true},
		{&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, true},
		{syscall.ECONNRESET, true},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, false},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, false},
		{context.DeadlineExceeded, false},
		{context.Canceled, false},
		{errors.New("ERR no"), false},
	} {
		if got := redisconn.Broken(c.err); got != c.want {
			t.Errorf("%v: got %v", c.err, got)
		}
	}
}

func TestUnopened(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	read := &net.OpError{Op: "read", Err: dial}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{dial, true},
		{fmt.Errorf("redis: %w", dial), true},
		{read, false},
		{errors.Join(dial), false},
		{fmt.Errorf("%w (on the previous request; this one: %w)", dial, read), false},
		{context.DeadlineExceeded, false},
	} {
		if got := redisconn.Unopened(c.err); got != c.want {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
}
