package work

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// A call that does not return should delay a limited number of other calls, and all important
// calls.
func TestCallQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q CallQueue
		stuck := make(chan struct{})
		q.Add(false, func() { <-stuck })
		synctest.Wait()
		called, losses, taken := 0, 0, 0
		for i := range 100_000 {
			if q.Add(false, func() { called++ }) {
				taken++
			}
			if i%1000 == 0 {
				q.Add(true, func() { losses++ })
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
		q.Wait(context.Background())
		if q.calls != nil || q.idle != nil {
			t.Error("the empty queue is not reset")
		}
	})
}

// A call that ends its goroutine, for example by failing a test, does not stop the others.
func TestCallThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q CallQueue
		called := 0
		for range 3 {
			q.Add(false, runtime.Goexit)
			q.Add(false, func() { called++ })
		}
		q.Wait(t.Context())
		if called != 3 {
			t.Errorf("%d called, want 3", called)
		}
	})
}
