package driver

// A Grouper is a Store that can acquire several names in one step: an AcquireRequest with With.
// Without it, each name is a group of its own, in the order of the names, and no request has With.
type Grouper interface {
	// Groups divides names into groups that one Acquire can take. The order of the groups
	// is the same for all clients of the store. A client that acquires several groups
	// does so in this order, so that no two clients deadlock.
	Groups(names []string) [][]string
}
