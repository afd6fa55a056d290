package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A wire is a connection, used by one caller at a time.
type wire struct {
	conn     net.Conn
	r        *bufio.Reader
	unusable bool // its deadline can no longer be set
}

// longAgo is a deadline to end all I/O at once.
var longAgo = time.Unix(1, 0)

// exchange writes a request and reads len(replies) replies. It returns how many it read.
func (w *wire) exchange(ctx context.Context, request []byte, replies []redisconn.Reply) (int, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(ioTimeout)
	}
	_ = w.conn.SetDeadline(deadline) // fails on a closed connection, as the write does
	unwatch := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(longAgo) })
	defer func() { w.unusable = !unwatch() }()

	if _, err := w.conn.Write(request); err != nil {
		return 0, withCause(ctx, err)
	}
	for i := range replies {
		value, err := readReply(w.r)
		if err != nil {
			return i, withCause(ctx, err)
		}
		replies[i] = toReply(value)
	}
	return len(replies), nil
}

func toReply(value any) redisconn.Reply {
	if refusal, ok := value.(redisconn.ServerError); ok {
		return redisconn.Reply{Err: refusal}
	}
	return redisconn.Reply{Value: value}
}

// withCause adds the context's error to err after ctx's end.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// send writes a command; its reply is read elsewhere.
func (w *wire) send(cmd redisconn.Cmd) error {
	request, err := appendCommand(nil, cmd.Words())
	if err != nil {
		return err
	}
	_, err = w.conn.Write(request)
	return err
}

// waitForReply returns when a reply begins to arrive, or arrived = false after the given
// silence.
func (w *wire) waitForReply(silence time.Duration) (arrived bool, err error) {
	_ = w.conn.SetDeadline(time.Now().Add(silence))
	_, err = w.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}
