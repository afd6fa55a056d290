package driver

// A Grouper is a Store that can acquire several names in a single step: an AcquireRequest with
// With. Without it, each name is a separate group, in the order of the names, and requests never
// use With.
type Grouper interface {
	// Groups divides names into groups. A single Acquire can acquire a whole group. The order is
	// the same for all clients. A client that acquires several groups follows this order, so that
	// no two clients deadlock.
	Groups(names []string) [][]string
}
