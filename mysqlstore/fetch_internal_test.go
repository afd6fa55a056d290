package mysqlstore

import (
	"testing"
	"testing/synctest"
	"time"
)

// A client should fetch as often as its most urgent expectation needs, and at once when it must
// expect more.
func TestPaceOfFetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all fetches
		c := all.open("c")
		want := func(after string, want time.Duration) {
			t.Helper()
			start, every := time.Now(), fetchWaiting
			if c.wait(t.Context(), &every); time.Since(start) != want {
				t.Errorf("%s: the next fetch is after %v, want %v", after, time.Since(start), want)
			}
		}
		all.queued()
		all.asks("another client")
		want("nothing", fetchIdle)
		all.asks("c")
		want("a holder has asked", 0)
		all.asks("c")
		want("it has asked again", fetchAsked)
		all.changed()
		want("a release", fetchAsked)
		all.queued()
		want("a request has queued", 0)
		all.waits("c")
		want("it waits", 0)
		want("it still waits", fetchWaiting)
		time.Sleep(askedFor)
		all.queued()
		want("a minute", fetchIdle)
	})
}
