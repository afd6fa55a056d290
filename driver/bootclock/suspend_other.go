//go:build !linux

package bootclock

import "time"

// suspended returns zero: the monotonic clock runs during a suspend here, or the two
// clocks cannot be distinguished.
func suspended() time.Duration { return 0 }
