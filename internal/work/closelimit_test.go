package work

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/internal/clock"
)

func TestCloseLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l CloseLimit
		want := func(timeout, want time.Duration) {
			t.Helper()
			if got := time.Until(l.Limit(timeout, 2*time.Second)); got != want {
				t.Errorf("a release has %v, want %v", got, want)
			}
		}
		want(time.Minute, time.Minute)
		l.Begin(time.Second)
		want(time.Minute, 2*time.Second)
		want(time.Second, time.Second)
		time.Sleep(4 * time.Second)
		want(time.Minute, time.Second) // five timeouts in all
		l.Shorten(500 * time.Millisecond)
		want(time.Minute, 500*time.Millisecond)
		l.Shorten(time.Minute) // never longer
		want(time.Minute, 500*time.Millisecond)
	})
}

// The limit is in the future, however long the operation timeout is.
func TestCloseLimitIsInTheFuture(t *testing.T) {
	for _, timeout := range []time.Duration{time.Millisecond, 58 * 365 * 24 * time.Hour, 1 << 58, math.MaxInt64} {
		var l CloseLimit
		l.Begin(timeout)
		if left := time.Until(l.Limit(timeout, clock.Times(2, timeout))); left <= 0 {
			t.Errorf("timeout %v: %v left", timeout, left)
		}
	}
}
