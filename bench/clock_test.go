//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"testing"
	"time"
)

// All processes should read the same clock, apart from a few microseconds.
func TestClockIsShared(t *testing.T) {
	least := time.Hour
	for range 1000 {
		before := sharedClock()
		least = min(least, max(before-now(), now()-sharedClock()))
	}
	if least > 5*time.Microsecond {
		t.Errorf("the clocks differ by %v", least)
	}
}
