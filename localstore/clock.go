package localstore

import "time"

// A clock determines when leases end. All processes on the machine read the same clock.
type clock struct {
	boot string // identifies the clock: the boot, and perhaps / and more; another clock's times are meaningless
	now  func() time.Duration
}
