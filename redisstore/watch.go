package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Watch implements driver.Store, with a subscription for each client.
func (s *Store) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	if s.format.Proxy {
		return errNoNotifications
	}
	if busy == nil {
		busy = func() bool { return true }
	}
	if s.format.Sharded {
		ctx, end := context.WithCancel(ctx)
		var epochs sync.WaitGroup
		epochs.Go(func() { s.watchEpoch(ctx, busy, on) })
		defer epochs.Wait()
		defer end()
	}
	master := &masterWatch{store: s, channel: wire.ChannelPrefix + client, busy: busy}
	attempts := newSubscribePauses()
	for first := true; ; first = false {
		var up time.Time
		err := s.subscribe(ctx, master, func(message string) {
			if message == "" {
				up = time.Now()
				on(driver.Event{Kind: driver.EventConnected})
				return
			}
			if e, ok := s.event(message); ok {
				on(e)
			}
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err = wrapError("watch", "", err)
		if forbidden(err) {
			return err
		}
		lasted := time.Duration(0)
		if !up.IsZero() {
			lasted = time.Since(up)
		}
		if !up.IsZero() || first {
			on(driver.Event{Kind: driver.EventDisconnected, Err: err})
		}
		attempts.ended(lasted)
		if !attempts.wait(ctx, busy) {
			return context.Cause(ctx)
		}
	}
}

// event reads a notification. With WithReplicas, a notified waiter repeats its request, which then
// waits for the replicas.
func (s *Store) event(message string) (driver.Event, bool) {
	m, ok := wire.ParseMessage(message)
	if !ok || m.Event.Kind != driver.EventGranted {
		return m.Event, ok
	}
	if s.replicas != nil {
		return driver.Event{Kind: driver.EventRetry, Token: m.Event.Token}, true
	}
	m.Event.Age = s.slots.Age(m.Sent)
	return m.Event, true
}

// subscribe listens until the connection fails, or is found to lead to the wrong server. In a
// cluster each server forwards the messages published on other servers.
func (s *Store) subscribe(ctx context.Context, master *masterWatch, on func(message string)) error {
	if s.format.Sharded {
		return s.conn.Subscribe(ctx, master.channel, master.busy, on)
	}
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	up := false
	err := s.conn.Subscribe(ctx, master.channel, master.busy, func(message string) {
		if message == "" && !up {
			up = true
			watching.Go(func() {
				if reason := master.watch(ctx); reason != nil {
					end(reason)
				}
			})
		}
		on(message)
	})
	if reason := context.Cause(ctx); reason != nil {
		return reason
	}
	return err
}

// epochless reports whether a server will never return the cluster's epoch.
func epochless(err error) bool {
	var server redisconn.ServerError
	return errors.Is(err, errNoEpoch) || forbidden(err) ||
		errors.As(err, &server) && strings.Contains(string(server), "cluster support disabled")
}

// watchEpoch reports failovers in a cluster. The subscription is on a single server and does not
// notice when another server, with the locks, dies. But each election starts its own epoch. This
// costs the cluster a small command, five times a second, while the client is busy.
func (s *Store) watchEpoch(ctx context.Context, busy func() bool, on func(driver.Event)) {
	const every = 200 * time.Millisecond
	wait := time.NewTimer(every)
	defer wait.Stop()
	backoff := load.Backoff{Shortest: 20 * time.Millisecond, Longest: time.Second, Part: 2}
	for known, again := "", false; ; {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		wait.Reset(every)
		if !busy() {
			continue
		}
		epoch, err := s.epoch(ctx)
		switch {
		case epochless(err):
			return // no cluster, or no permission
		case err != nil: // the dead node, too many clients, or a new password: this may pass
			wait.Reset(backoff.Next(time.Now()))
			continue
		}
		backoff.Reset()
		changed := known != "" && epoch != known
		known = epoch
		if changed || again {
			if r, ok := s.conn.(redisconn.Refresher); ok {
				r.Refresh()
			}
			s.slots.Reset()
			on(driver.Event{Kind: driver.EventFailover})
		}
		again = changed // once more: the first time may have been too early
	}
}

// epoch returns the cluster's current epoch, from any node, within 100 ms.
func (s *Store) epoch(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	var reply [1]redisconn.Reply
	until, _ := ctx.Deadline()
	s.conn.Do(ctx, until, []redisconn.Cmd{redisconn.Command("CLUSTER", "INFO")}, reply[:])
	text, _ := reply[0].Value.(string)
	epoch := wire.ParseInfo(text)["cluster_current_epoch"]
	if reply[0].Err == nil && epoch == "" {
		return "", fmt.Errorf("%w: %w", errNoEpoch, redisconn.Unexpected(reply[0].Value))
	}
	return epoch, reply[0].Err
}

var errNoEpoch = errors.New("CLUSTER INFO has no current epoch")
