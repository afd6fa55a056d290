package dibs

import (
	"math"
	"time"
)

// sum returns the sum of two durations. Beyond the range of a duration it returns the
// largest or the smallest one: an option may have any value, and a limit that overflows would
// lie in the past.
func sum(a, b time.Duration) time.Duration {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// times returns n times d, for a positive n. Like sum, it never overflows.
func times(n int64, d time.Duration) time.Duration {
	switch {
	case d > math.MaxInt64/time.Duration(n):
		return math.MaxInt64
	case d < math.MinInt64/time.Duration(n):
		return math.MinInt64
	}
	return time.Duration(n) * d
}
