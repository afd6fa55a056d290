package work

import (
	"context"
	"time"
)

// Pause sleeps for d, or returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool { return pause(ctx, d, nil) }

// PauseUntil sleeps for d, or returns false if ctx or another context ends first.
func PauseUntil(ctx, other context.Context, d time.Duration) bool { return pause(ctx, d, other.Done()) }

func pause(ctx context.Context, d time.Duration, end <-chan struct{}) bool {
	if ctx.Err() != nil { // without a pause, both could be ready
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-end:
	}
	return false
}
