//go:build !linux

package localstore

import "time"

// bootClock returns the wall clock: the only clock here that is the same in all processes without
// an additional system call. Leases survive a restart until their TTL, and setting the clock
// forward ends them.
func bootClock() (clock, error) {
	return clock{"wall", func() time.Duration { return time.Duration(time.Now().UnixNano()) }}, nil
}
