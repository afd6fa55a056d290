package links_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/dibslock/dibs/internal/links"
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
		if got := links.Broken(c.err); got != c.want {
			t.Errorf("%v: got %v", c.err, got)
		}
	}
}
