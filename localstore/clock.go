package localstore

import "time"

// A clock tells the time by which leases end. All processes of the machine read the same.
type clock struct {
	boot string // since when it runs: what another clock has timed means nothing
	now  func() time.Duration
}
