package localstore

import "time"

// A clock is the clock by which leases end. All processes of the machine read the same
// one.
type clock struct {
	boot string // identifies the clock: the boot, and perhaps / and more; times of another clock are meaningless
	now  func() time.Duration
}
