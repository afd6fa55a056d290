package driver

import "time"

// A Limiter is a Store with coarser times than others, because its server measures so.
type Limiter interface {
	// Limits returns the times. They stay the same.
	Limits() Limits
}

// Limits are a store's times. The zero value is that of a store without a Limiter.
type Limits struct {
	MinTTL    time.Duration // a request with a shorter TTL is ErrInvalid
	WaiterTTL time.Duration // how long a dead waiter, or a hand-off without a renewal, can block a name; at least the constant WaiterTTL, or zero
	Late      time.Duration // how much longer than its TTL a lease with the shortest TTL can block a name after a crash
}

// LimitsOf returns the limits of a store, or of the store behind a decorator.
func LimitsOf(s Store) Limits {
	var limits Limits
	if limiter, ok := Innermost(s).(Limiter); ok {
		limits = limiter.Limits()
	}
	limits.WaiterTTL = max(limits.WaiterTTL, WaiterTTL)
	return limits
}
