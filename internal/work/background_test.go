package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// WaitJobs waits for jobs, WaitAll also for loops, and both end with their context.
func TestBackgroundWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBackground()
		start := time.Now()
		b.Run(func(context.Context) { time.Sleep(time.Second) })
		b.Loop(func() { <-b.UntilEnd().Done(); time.Sleep(time.Second) })
		if !b.Begin() {
			t.Fatal("Begin fails before Close")
		}
		time.AfterFunc(3*time.Second, b.Done)
		if !b.Close() || b.Close() || b.Begin() || !b.IsClosed() {
			t.Fatal("Close takes effect once, and Begin fails after it")
		}
		<-b.UntilClose().Done()
		wait := func(wait func(context.Context), want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if wait(ctx); time.Since(start) != want {
				t.Errorf("waited until %v, want %v", time.Since(start), want)
			}
		}
		wait(b.WaitJobs, 3*time.Second)
		wait(b.WaitAll, 13*time.Second) // the loop runs until life ends
		if !b.Run(func(context.Context) {}) {
			t.Error("a job does not run between Close and the end of life")
		}
		b.End()
		if b.Run(func(context.Context) { t.Error("a job runs after the end of life") }) {
			t.Error("Run returns true after the end of life")
		}
		wait(b.WaitAll, 14*time.Second)
	})
}
