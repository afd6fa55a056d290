package driver

import "context"

// An Announcer is a Store in which a dead waiter can block a name for seconds, because the store
// drops a silent waiter only after that time. For any other Store, the Client announces nothing.
type Announcer interface {
	// Announce prepares for later acquires. Calls of the Client wait for other names, and will
	// acquire these names afterwards. The names can belong to several groups: see Grouper. Meanwhile
	// the store finds the dead waiters for these names. Announce neither acquires nor queues. It
	// returns no error, because a lost announcement only adds latency. A Client repeats it every
	// 1.2 s.
	Announce(ctx context.Context, names []string)
}
