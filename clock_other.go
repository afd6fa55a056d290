//go:build !linux

package dibs

import "time"

// suspended is zero where the monotonic clock goes on during suspend, or where
// the two cannot be told apart.
func suspended() time.Duration { return 0 }
