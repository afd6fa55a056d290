package driver

import "context"

// An Announcer is a Store in which a crashed waiter can block a name for seconds, because only a
// missing heartbeat shows the crash. Announce lets the store find such waiters earlier. A Client
// calls Announce only if its Store is an Announcer.
type Announcer interface {
	// Announce receives names that this Client will acquire later. A lock call for several
	// groups of names acquires the groups in sequence (see Grouper). While it waits for a group, the
	// Client announces the names in the later groups. The store then detects crashed waiters for
	// these names. Announce neither acquires nor queues. It returns no error, because a lost
	// announcement only adds latency. A Client repeats the announcement every 1.2 s.
	Announce(ctx context.Context, names []string)
}
