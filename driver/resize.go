package driver

import "context"

// A Resizer is a Store that can change a lease's weight. Without it, an RWMutex can neither upgrade
// nor downgrade.
type Resizer interface {
	// Resize changes a lease's weight to r.Weight, and raises a shorter remaining time to r.TTL. If
	// the token does not hold the name, or if others hold too much, the reply is not Held and
	// nothing changes. A smaller weight makes room, which Resize grants to the waiters that fit. A
	// request to NotifyWanted stays in effect.
	Resize(ctx context.Context, r AcquireRequest) (AcquireReply, error)
}
