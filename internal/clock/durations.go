// Package clock computes with times and durations of deadlines, without overflow.
package clock

import (
	"math"
	"time"
)

// Never is a time in the infinite future.
const Never = time.Duration(math.MaxInt64)

// Slack is the assumed maximum difference between the store's clock and this process's clock, for
// requests with a time limit.
const Slack = 100 * time.Millisecond

// Add returns the sum of two durations. Out of range, it returns the largest or the smallest
// duration: an option can have any value, and an overflowing limit would lie in the past.
func Add(a, b time.Duration) time.Duration {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Times returns n times d, for a positive n. Like Add, it never overflows.
func Times(n int64, d time.Duration) time.Duration {
	switch {
	case d > math.MaxInt64/time.Duration(n):
		return math.MaxInt64
	case d < math.MinInt64/time.Duration(n):
		return math.MinInt64
	}
	return time.Duration(n) * d
}
