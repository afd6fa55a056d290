package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dibslock/dibs"
)

// Watch implements dibs.Store: one subscription for one client.
func (s *Store) Watch(ctx context.Context, client string, on func(dibs.Event)) error {
	// A server that has come back is found within 50 ms: leases that it forgot are
	// told of at once, and waiters ask again.
	const soon, later, few = 10 * time.Millisecond, 50 * time.Millisecond, 5
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
