package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// pingAfter is the silence after which a subscription sends a PING. After the same time
// without a reply it ends.
const pingAfter = time.Second

var errNoReply = errors.New("redistest: no reply on the subscription")

// Subscribe implements redisconn.Conn. It subscribes on its own connection until ctx ends or the
// connection fails, and returns the reason. It fails after two seconds without data, although it
// sends a PING after the first. While busy returns false, it sends no PING, and the connection can
// be silent.
func (c *Conn) Subscribe(ctx context.Context, channel string, busy func() bool, on func(message string)) error {
	w, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer c.drop(w)
	unwatch := context.AfterFunc(ctx, func() { w.conn.Close() })
	defer unwatch()
	return withCause(ctx, w.listen(channel, busy, on))
}

func (w *wire) listen(channel string, busy func() bool, on func(message string)) error {
	_ = w.conn.SetDeadline(time.Now().Add(ioTimeout))
	if err := w.send(redisconn.Command("SUBSCRIBE", channel)); err != nil {
		return err
	}
	for {
		if err := w.waitForMessage(busy); err != nil {
			return err
		}
		message, err := w.readMessage()
		if err != nil {
			return err
		}
		switch message.kind {
		case "subscribe":
			on("")
		case "message":
			on(message.payload)
		}
	}
}

// waitForMessage waits for the first byte only: a read timeout within a message would lose the part
// read.
func (w *wire) waitForMessage(busy func() bool) error {
	for waiting := true; waiting; waiting = !busy() {
		if arrived, err := w.waitForReply(pingAfter); arrived || err != nil {
			return err
		}
	}
	if err := w.ping(); err != nil {
		return err
	}
	arrived, err := w.waitForReply(pingAfter)
	if err == nil && !arrived {
		return errNoReply
	}
	return err
}

func (w *wire) ping() error {
	_ = w.conn.SetDeadline(time.Now().Add(pingAfter))
	return w.send(redisconn.Command("PING"))
}

type message struct{ kind, payload string }

// readMessage reads a message from a subscribed connection: subscribe, channel, count; message,
// channel, payload; or pong, "".
func (w *wire) readMessage() (message, error) {
	_ = w.conn.SetDeadline(time.Now().Add(2 * pingAfter))
	value, err := readReply(w.r)
	if err != nil {
		return message{}, err
	}
	if refusal, ok := value.(redisconn.ServerError); ok {
		return message{}, refusal
	}
	items, _ := value.([]any)
	if len(items) == 0 {
		return message{}, fmt.Errorf("%w: unexpected message %v", errProtocol, value)
	}
	kind, _ := items[0].(string)
	payload, _ := items[len(items)-1].(string)
	return message{kind, payload}, nil
}
