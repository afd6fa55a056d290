package clock

import "time"

// Margin returns how long before the server's expiry a lease counts as lost. It is 2 % of the TTL,
// for clocks with different rates and late timers, and at least 2 ms.
func Margin(ttl time.Duration) time.Duration { return max(ttl/50, 2*time.Millisecond) }

// MayArrive reports whether a request that becomes void after until can still take effect.
func MayArrive(until time.Time) bool {
	return !until.IsZero() && time.Since(until) <= Slack
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
