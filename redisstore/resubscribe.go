package redisstore

import (
	"context"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// subscribePauses are the pauses between a client's attempts to subscribe. A server that is
// back after a short outage is detected soon. Leases that it lost are then reported, and
// waiters retry.
type subscribePauses struct{ backoff load.Backoff }

const (
	soonPause = 25 * time.Millisecond  // at the beginning of an outage
	mostPause = time.Second            // in a long outage
	idlePause = 10 * time.Second       // of a client that needs no events
	idleCheck = 100 * time.Millisecond // how often it is asked whether it does
	lasting   = time.Second            // how long a subscription lasts that ends the outage
)

func newSubscribePauses() subscribePauses {
	return subscribePauses{load.Backoff{Shortest: soonPause, Longest: mostPause, Part: 8}}
}

// ended records the end of an attempt. lasted is how long it was subscribed.
func (r *subscribePauses) ended(lasted time.Duration) {
	if lasted >= lasting {
		r.backoff.Reset()
	}
}

// wait waits until the next attempt is due, or returns false if ctx ends first. A client that
// holds and awaits nothing waits longer, until it does.
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
