package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// Watch implements driver.Store, with its own listening connection.
func (s *Store) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	if err := s.conns.check(); err != nil || s.poll {
		return err
	}
	const lasting = time.Second // a connection lasting this long ends the outage
	backoff := listenBackoff()
	for first := true; ; first = false {
		var up time.Time
		err := s.listen(ctx, channelOf(client), func() {
			up = time.Now()
			on(driver.Event{Kind: driver.EventConnected})
		}, func(message string) {
			if e, ok := sqlstore.ParseEvent(message, s.db.Limit.Clock.Age); ok {
				e.Token, e.Reason = fromText(e.Token), fromText(e.Reason)
				on(e)
			}
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !up.IsZero() || first {
			on(driver.Event{Kind: driver.EventDisconnected, Err: unavailable("watch", "", err)})
		}
		if !up.IsZero() && time.Since(up) >= lasting {
			backoff.Reset()
		}
		select {
		case <-time.After(backoff.Next(time.Now())):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listenBackoff returns the pauses between attempts to listen. They are as long as the outage, at
// most 3 s. Requests pause for less: without notifications a waiter asks again.
func listenBackoff() *sqlstore.Backoff {
	return sqlstore.NewBackoff(25*time.Millisecond, 3*time.Second, 1)
}

// channelOf returns a client's channel. A channel's name can be 63 bytes long.
func channelOf(client string) string {
	sum := sha256.Sum256([]byte(toText(client)))
	return "dibs_" + hex.EncodeToString(sum[:16])
}

// listen passes on a channel's notifications, until the connection fails. An idle connection is
// checked, because a dead connection is as silent.
func (s *Store) listen(ctx context.Context, channel string, connected func(), on func(message string)) error {
	const idle, answer = 2 * time.Second, 2 * time.Second
	connecting, cancel := context.WithTimeout(ctx, 10*time.Second)
	conn, err := s.conns.connect(connecting)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	limited, cancel := context.WithTimeout(ctx, answer)
	_, err = conn.Exec(limited, makeSuitable+"LISTEN "+quote(channel))
	cancel()
	if err != nil {
		return err
	}
	connected()
	for {
		waiting, cancel := context.WithTimeout(ctx, idle)
		message, err := conn.WaitForNotification(waiting)
		timedOut := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			on(message.Payload)
			continue
		case ctx.Err() != nil || !timedOut || conn.IsClosed():
			return err
		}
		limited, cancel := context.WithTimeout(ctx, answer)
		err = conn.Ping(limited)
		cancel()
		if err != nil {
			return err
		}
	}
}
