//go:build !linux

package redistest

import (
	"context"
	"time"
)

// An alarm waits for a point in time, as exactly as the system's timers do.
type alarm struct{}

// wait returns true at the given time, or false if ctx ends before.
func (alarm) wait(ctx context.Context, until time.Time) bool {
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

func (alarm) stop() {}
