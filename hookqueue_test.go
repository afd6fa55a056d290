package dibs

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// A hook that does not return delays a bounded number of others, and all losses.
func TestHookQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q hookQueue
		stuck := make(chan struct{})
		q.add(false, func() { <-stuck })
		synctest.Wait()
		called, losses, taken := 0, 0, 0
		for i := range 100_000 {
			if q.add(false, func() { called++ }) {
				taken++
			}
			if i%1000 == 0 {
				q.add(true, func() { losses++ })
			}
		}
		if taken > maxQueued || taken < maxQueued-100 {
			t.Errorf("%d are queued, want about %d", taken, maxQueued)
		}
		if n := runtime.NumGoroutine(); n > 50 {
			t.Errorf("%d goroutines", n)
		}
		close(stuck)
		synctest.Wait()
		if called != taken || losses != 100 {
			t.Errorf("%d of %d called, and %d losses of 100", called, taken, losses)
		}
		q.wait(context.Background())
		if q.calls != nil || q.idle != nil {
			t.Error("the empty queue is not reset")
		}
	})
}

// A hook that ends its goroutine, such as one that fails a test, does not stop other
// hooks.
func TestHookThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q hookQueue
		called := 0
		for range 3 {
			q.add(false, runtime.Goexit)
			q.add(false, func() { called++ })
		}
		q.wait(t.Context())
		if called != 3 {
			t.Errorf("%d hooks called, want 3", called)
		}
	})
}
