package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/redisstore"
)

// pingAfter is the silence after which a subscription asks whether anybody is
// there. As much again, and it is over.
const pingAfter = time.Second

var errMute = errors.New("redistest: subscription is mute")

// Subscribe implements redisstore.Conn: it listens on a connection of its own
// until ctx ends or the connection fails, and returns why. It gives up on a server that has been silent for two
// seconds although it was asked after the first.
func (c *Conn) Subscribe(ctx context.Context, channel string, on func(message string)) error {
	w, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer c.drop(w)
	unwatch := context.AfterFunc(ctx, func() { w.conn.Close() })
	defer unwatch()
	return because(ctx, w.listen(channel, on))
}

func (w *wire) listen(channel string, on func(message string)) error {
	_ = w.conn.SetDeadline(time.Now().Add(patience))
	if err := w.send(redisstore.Cmd{"SUBSCRIBE", channel}); err != nil {
		return err
	}
	for {
		if err := w.awaitPush(); err != nil {
			return err
		}
		push, err := w.readPush()
		if err != nil {
			return err
		}
		switch push.kind {
		case "subscribe":
			on("")
		case "message":
			on(push.payload)
		}
	}
}

// awaitPush waits for the first byte only: a read that times out in the middle of
// a message would lose its first half.
func (w *wire) awaitPush() error {
	if arrived, err := w.await(pingAfter); arrived || err != nil {
		return err
	}
	if err := w.ping(); err != nil {
		return err
	}
	arrived, err := w.await(pingAfter)
	if err == nil && !arrived {
		return errMute
	}
	return err
}

func (w *wire) ping() error {
	_ = w.conn.SetDeadline(time.Now().Add(pingAfter))
	return w.send(redisstore.Cmd{"PING"})
}

type push struct{ kind, payload string }

// readPush reads what a subscribed connection may say: subscribe, channel, count;
// message, channel, payload; or pong, "".
func (w *wire) readPush() (push, error) {
	_ = w.conn.SetDeadline(time.Now().Add(2 * pingAfter))
	value, err := readReply(w.r)
	if err != nil {
		return push{}, err
	}
	if refusal, ok := value.(redisstore.ServerError); ok {
		return push{}, refusal
	}
	items, _ := value.([]any)
	if len(items) == 0 {
		return push{}, fmt.Errorf("%w: subscription gave %v", errProtocol, value)
	}
	kind, _ := items[0].(string)
	payload, _ := items[len(items)-1].(string)
	return push{kind, payload}, nil
}
