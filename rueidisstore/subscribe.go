package rueidisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/rueidis"
)

// Subscribe implements redisstore.Conn. It has a connection of its own: on the one that
// all share, rueidis would subscribe again by itself after a failure, and not tell that
// messages may have been missed. To take that connection may last, and heeds no context.
func (c *conn) Subscribe(ctx context.Context, channel string, on func(message string)) error {
	e := ear{on: on}
	defer e.close()
	ended := make(chan error, 1)
	go func() { ended <- c.listen(ctx, channel, &e) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listen subscribes, and again every second: that is the ping of a subscription, which
// goes where it is, in RESP2 too, where rueidis has another connection for it.
func (c *conn) listen(ctx context.Context, channel string, e *ear) error {
	line, _ := c.client.Dedicate()
	defer line.Close() // takes a second if it is mute
	gone := line.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(rueidis.PubSubSubscription) { e.confirm() },
		OnMessage:      func(m rueidis.PubSubMessage) { e.tell(m.Message) },
	})
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		if err := c.subscribe(ctx, line, channel); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case err := <-gone:
			c.sweep(c.bound(ctx), c.client, redisstore.Cmd{"PING"})
			return c.lost(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *conn) subscribe(ctx context.Context, line rueidis.DedicatedClient, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return c.reply(line.Do(ctx, line.B().Subscribe().Channel(channel).Build())).Err
}

func (c *conn) lost(err error) error {
	if err == nil {
		return fmt.Errorf("subscription lost")
	}
	return c.failure(err)
}

// An ear passes on what rueidis hears, in its reader's goroutine, to a listener that
// hears nothing before it is confirmed or after it has left.
type ear struct {
	mu        sync.Mutex
	on        func(message string)
	confirmed bool
	closed    bool
}

func (e *ear) confirm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.confirmed && !e.closed {
		e.confirmed = true
		e.on("")
	}
}

func (e *ear) tell(message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.on(message)
	}
}

func (e *ear) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}

var _ redisstore.Conn = (*conn)(nil)
