package driver

import "context"

// An Announcer is a Store in which a silent waiter may block a name for seconds after it is
// found. The store cannot know at once whether it is dead. Without it, nothing is announced.
type Announcer interface {
	// Announce says that the caller will acquire these names, of several groups, after a name
	// that it waits for. Meanwhile the store finds out which of their waiters are dead.
	// Announce neither acquires nor queues. It reports no error, because a lost announcement
	// costs latency only. A Client repeats it every 1.2 s.
	Announce(ctx context.Context, names []string)
}
