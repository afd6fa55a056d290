package driver

// A Grouper is a Store that can acquire several names in a single step: AcquireRequest.With
// contains the further names. With another Store, a Client acquires the names one by one, in sorted
// order, and With is always empty.
type Grouper interface {
	// Groups divides names into groups. A single Acquire can acquire a whole group. The groups have
	// the same order for all clients. Each client acquires the groups in this order, so no two clients
	// deadlock.
	Groups(names []string) [][]string
}
