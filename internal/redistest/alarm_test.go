package redistest

import (
	"context"
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	var a alarm
	defer a.stop()
	for _, d := range []time.Duration{-time.Hour, 0, 1, 300 * time.Microsecond, 3 * time.Millisecond} {
		due := time.Now().Add(d)
		if !a.wait(t.Context(), due) {
			t.Fatalf("%v: it gave up", d)
		}
		if early := time.Until(due); early > 0 {
			t.Errorf("%v: it is %v early", d, early)
		}
	}
}

func TestAlarmIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var a alarm
		defer a.stop()
		if a.wait(ctx, time.Now().Add(time.Hour)) {
			t.Error("an hour has passed")
		}
	}()
	cancel()
	happens(t, "the alarm gives up", done)
}
