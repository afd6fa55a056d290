package driver

import "context"

// An Announcer is a Store in which a dead waiter can block a name for seconds, because the store
// cannot tell at once whether a silent waiter is dead. Without it, the Client announces nothing.
type Announcer interface {
	// Announce prepares for a later acquire: the caller waits for a name, and will acquire these
	// names afterwards, from several groups. Meanwhile the store finds the dead waiters for these
	// names. Announce neither acquires nor queues. It returns no error, because a lost announcement
	// only adds latency. A Client repeats it every 1.2 s.
	Announce(ctx context.Context, names []string)
}
