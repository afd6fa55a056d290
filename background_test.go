package dibs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// waitJobs waits for jobs, waitAll for loops, too, and both end with their context.
func TestBackgroundWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackground()
		start := time.Now()
		b.run(func(context.Context) { time.Sleep(time.Second) })
		b.loop(func() { <-b.life.Done(); time.Sleep(time.Second) })
		if !b.begin() {
			t.Fatal("begin fails before close")
		}
		time.AfterFunc(3*time.Second, b.done)
		if !b.close() || b.close() || b.begin() || !b.isClosed() {
			t.Fatal("close takes effect once, and begin fails after it")
		}
		<-b.closing
		wait := func(wait func(context.Context), want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if wait(ctx); time.Since(start) != want {
				t.Errorf("waited until %v, want %v", time.Since(start), want)
			}
		}
		wait(b.waitJobs, 3*time.Second)
		wait(b.waitAll, 13*time.Second) // the loop runs until the end of life
		if !b.run(func(context.Context) {}) {
			t.Error("a job does not run between close and the end of life")
		}
		b.end()
		if b.run(func(context.Context) { t.Error("a job runs after the end of life") }) {
			t.Error("run returns true after the end of life")
		}
		wait(b.waitAll, 14*time.Second)
	})
}
