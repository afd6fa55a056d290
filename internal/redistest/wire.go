package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/dibslock/dibs/redisstore"
)

// A wire is one connection, used by one caller at a time.
type wire struct {
	conn  net.Conn
	r     *bufio.Reader
	spent bool // its deadline is no longer ours to set
}

// longAgo is a deadline that ends all I/O at once.
var longAgo = time.Unix(1, 0)

// exchange writes a request and reads as many replies as there is room for. It
// returns how many it has read.
func (w *wire) exchange(ctx context.Context, request []byte, replies []redisstore.Reply) (int, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
	}
	_ = w.conn.SetDeadline(deadline) // fails if closed, and so will the write
	unwatch := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(longAgo) })
	defer func() { w.spent = !unwatch() }()

	if _, err := w.conn.Write(request); err != nil {
		return 0, because(ctx, err)
	}
	for i := range replies {
		value, err := readReply(w.r)
		if err != nil {
			return i, because(ctx, err)
		}
		replies[i] = toReply(value)
	}
	return len(replies), nil
}

func toReply(value any) redisstore.Reply {
	if refusal, ok := value.(redisstore.ServerError); ok {
		return redisstore.Reply{Err: refusal}
	}
	return redisstore.Reply{Value: value}
}

// because names ctx as the cause of a failure where it was.
func because(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// send writes commands whose replies are read elsewhere.
func (w *wire) send(cmd redisstore.Cmd) error {
	request, err := appendCommand(nil, cmd)
	if err != nil {
		return err
	}
	_, err = w.conn.Write(request)
	return err
}

// await returns once a reply has begun to arrive, or the connection has been
// silent for the given time: then arrived is false.
func (w *wire) await(silence time.Duration) (arrived bool, err error) {
	_ = w.conn.SetDeadline(time.Now().Add(silence))
	_, err = w.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}
