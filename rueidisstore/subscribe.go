package rueidisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/redis/rueidis"
)

// Subscribe implements redisconn.Conn. It uses a dedicated connection. On the shared connection,
// rueidis would silently subscribe again after a failure, although messages may have been missed.
// Taking a dedicated connection can block and accepts no context, so it happens in its own
// goroutine.
func (c *conn) Subscribe(ctx context.Context, channel string, busy func() bool, on func(message string)) error {
	s := subscriber{on: on}
	defer s.close()
	ended := make(chan error, 1)
	go func() { ended <- c.listen(ctx, channel, busy, &s) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listen subscribes, and subscribes again every second in place of a ping, while busy. A SUBSCRIBE
// uses the subscription's connection; with RESP2, rueidis sends a PING on another connection.
func (c *conn) listen(ctx context.Context, channel string, busy func() bool, s *subscriber) error {
	dedicated, _ := c.client.Dedicate()
	defer dedicated.Close() // takes a second if the connection is unresponsive
	closed := dedicated.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(rueidis.PubSubSubscription) { s.confirm() },
		OnMessage:      func(m rueidis.PubSubMessage) { s.deliver(m.Message) },
	})
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	within, due := ioTimeout, true // with RESP2, the first SUBSCRIBE opens a connection
	for ; ; within, due = pingTimeout, busy() {
		if due {
			if err := c.subscribe(ctx, dedicated, channel, within); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case err := <-closed:
			c.sweep(c.bounded(ctx, deadlineOf(ctx)), c.client, redisconn.Command("PING"))
			return c.subscriptionError(ctx, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *conn) subscribe(ctx context.Context, dedicated rueidis.DedicatedClient, channel string, within time.Duration) error {
	ctx = withValues{newTimedContext(time.Now().Add(within)), ctx}
	return c.reply(ctx, dedicated.Do(ctx, dedicated.B().Subscribe().Channel(channel).Build())).Err
}

func (c *conn) subscriptionError(ctx context.Context, err error) error {
	if err == nil {
		return fmt.Errorf("rueidis ended the subscription")
	}
	return c.convertError(ctx, err)
}

// subscriber passes messages from rueidis' reader goroutine to on. It passes none before
// the subscription is confirmed or after close.
type subscriber struct {
	mu        sync.Mutex
	on        func(message string)
	confirmed bool
	closed    bool
}

func (s *subscriber) confirm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.confirmed && !s.closed {
		s.confirmed = true
		s.on("")
	}
}

func (s *subscriber) deliver(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.on(message)
	}
}

func (s *subscriber) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

var _ redisconn.Conn = (*conn)(nil)
