//go:build !linux

package localstore

import "time"

// bootClock is the wall clock: the only one that is the same in all processes here and
// needs no system call of its own. Leases outlive a restart until their TTL is over, and
// whoever sets the clock ahead ends them.
func bootClock() (clock, error) {
	return clock{"wall", func() time.Duration { return time.Duration(time.Now().UnixNano()) }}, nil
}
