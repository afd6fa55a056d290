package driver

import "context"

// A Resizer is a Store that can change the weight of a lease. Without it, RWMutex has no upgrade and
// no downgrade.
type Resizer interface {
	// Resize changes the weight of a lease, and raises its remaining time to r.TTL if it
	// is shorter. If the token does not hold the name, or if others hold too much, the
	// reply is not Held and nothing changes. A smaller weight makes room, which is
	// granted to the waiters that fit. It keeps what NotifyWanted has asked for.
	Resize(ctx context.Context, r AcquireRequest) (AcquireReply, error)
}
