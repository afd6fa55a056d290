package redistest

import (
	"context"
	"testing"
	"time"
)

func TestTimer(t *testing.T) {
	var a preciseTimer
	defer a.stop()
	for _, d := range []time.Duration{-time.Hour, 0, 1, 300 * time.Microsecond, 3 * time.Millisecond} {
		due := time.Now().Add(d)
		if !a.wait(t.Context(), due) {
			t.Fatalf("%v: wait returned false", d)
		}
		if early := time.Until(due); early > 0 {
			t.Errorf("%v: %v early", d, early)
		}
	}
}

func TestTimerEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var a preciseTimer
		defer a.stop()
		if a.wait(ctx, time.Now().Add(time.Hour)) {
			t.Error("wait returned true")
		}
	}()
	cancel()
	wantClosed(t, "the alarm gives up", done)
}
