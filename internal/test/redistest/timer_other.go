//go:build !linux

package redistest

import (
	"context"
	"time"
)

// A preciseTimer waits for a point in time, as precisely as the system's timers.
type preciseTimer struct{}

// wait returns true at the given time, or false if ctx ends earlier.
func (preciseTimer) wait(ctx context.Context, until time.Time) bool {
	left := time.Until(until)
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (preciseTimer) stop() {}
