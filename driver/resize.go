package driver

import "context"

// A Resizer is a Store that can change a lease's weight. With another Store, an RWMutex can neither
// upgrade nor downgrade.
type Resizer interface {
	// Resize changes a lease's weight to r.Weight, and raises a shorter remaining time to r.TTL. If
	// the token does not hold the name, or if the other holders' weights leave too little room,
	// nothing changes and the reply's Held is false. After a smaller weight, Resize grants the name to
	// the next waiters that fit within the limit. An earlier NotifyWanted for the lease stays in
	// effect.
	Resize(ctx context.Context, r AcquireRequest) (AcquireReply, error)
}
