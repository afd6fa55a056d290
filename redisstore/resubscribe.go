package redisstore

import (
	"context"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// subscribePauses are the pauses between a client's attempts to subscribe. A server's return after
// a short outage is detected soon. Its lost leases are then reported, and waiters retry.
type subscribePauses struct{ backoff load.Backoff }

const (
	soonPause = 25 * time.Millisecond  // at the start of an outage
	mostPause = time.Second            // in a long outage
	idlePause = 10 * time.Second       // for a client that needs no events
	idleCheck = 100 * time.Millisecond // how often it is asked whether it does
	lasting   = time.Second            // a subscription that lasts this long ends the outage
)

func newSubscribePauses() subscribePauses {
	return subscribePauses{load.Backoff{Shortest: soonPause, Longest: mostPause, Part: 8}}
}

// ended records the end of an attempt, subscribed for lasted.
func (r *subscribePauses) ended(lasted time.Duration) {
	if lasted >= lasting {
		r.backoff.Reset()
	}
}

// wait waits until the next attempt is due, or returns false if ctx ends first. For a client
// without leases and waiters the pause is longer, until it becomes busy.
func (r *subscribePauses) wait(ctx context.Context, busy func() bool) bool {
	begin := time.Now()
	for pause := r.backoff.Next(begin); ; pause = idleCheck {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
		if busy() || time.Since(begin) >= idlePause {
			return true
		}
	}
}
