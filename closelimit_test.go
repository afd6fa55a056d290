package dibs

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l closeLimit
		want := func(timeout, want time.Duration) {
			t.Helper()
			if got := time.Until(l.limit(timeout, 2*time.Second)); got != want {
				t.Errorf("a release has %v, want %v", got, want)
			}
		}
		want(time.Minute, time.Minute)
		l.begin(time.Second)
		want(time.Minute, 2*time.Second)
		want(time.Second, time.Second)
		time.Sleep(4 * time.Second)
		want(time.Minute, time.Second) // five timeouts in all
		l.shorten(500 * time.Millisecond)
		want(time.Minute, 500*time.Millisecond)
		l.shorten(time.Minute) // never longer
		want(time.Minute, 500*time.Millisecond)
	})
}
