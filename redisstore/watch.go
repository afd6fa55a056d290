package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// Watch implements dibs.Store: one subscription for one client.
func (s *Store) Watch(ctx context.Context, client string, on func(dibs.Event)) error {
	// A server that has come back is found within 50 ms: leases that it forgot are
	// told of at once, and waiters ask again.
	const soon, later, few = 10 * time.Millisecond, 50 * time.Millisecond, 5
	if s.sharded {
		ctx, end := context.WithCancel(ctx)
		var pulse sync.WaitGroup
		pulse.Go(func() { s.pulse(ctx, on) })
		defer pulse.Wait()
		defer end()
	}
	for tries := 0; ; tries++ {
		up := false
		err := s.conn.Subscribe(ctx, channel+client, func(message string) {
			if message == "" {
				up, tries = true, 0
				on(dibs.Event{Kind: dibs.Up})
				return
			}
			if e, ok := s.parseMessage(message); ok {
				on(e)
			}
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err = fail("watch", "", err)
		if forbidden(err) {
			return err
		}
		if up || tries == 0 {
			on(dibs.Event{Kind: dibs.Down, Err: err})
		}
		wait := later
		if tries < few {
			wait = soon
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// forbidden reports whether the server will not let this user subscribe.
func forbidden(err error) bool {
	var server ServerError
	return errors.As(err, &server) && (strings.HasPrefix(string(server), "NOPERM") || strings.HasPrefix(string(server), "ERR unknown command"))
}

// pulse tells of failovers in a cluster. The subscription lives on one of its servers,
// and does not notice when another one dies that has the locks: each election has an
// epoch of its own. It costs the cluster one small command, five times a second.
func (s *Store) pulse(ctx context.Context, on func(dibs.Event)) {
	const every = 200 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for known, again := "", false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var reply [1]Reply
		s.conn.Do(ctx, []Cmd{{"CLUSTER", "INFO"}}, reply[:])
		if forbidden(reply[0].Err) {
			return
		}
		text, _ := reply[0].Value.(string)
		epoch := infoField(text, "cluster_current_epoch")
		changed := epoch != "" && known != "" && epoch != known
		if changed || again {
			on(dibs.Event{Kind: dibs.Changed})
		}
		// Once more at the next beat: the client library's map of the cluster, and the
		// election itself, may be behind the first.
		again = changed
		if epoch != "" {
			known = epoch
		}
	}
}

// infoField finds "name:value" in the lines of an INFO reply.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && key == name {
			return value
		}
	}
	return ""
}
