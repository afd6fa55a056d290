package dibs

import (
	"testing"
	"testing/synctest"
	"time"
)

// The kernel is asked whether the machine was suspended at first, and when the wall clock
// has left the monotonic one, and not for each lock.
func TestBootClockIsAskedWhenTheWallClockMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		if !c.strayed() {
			t.Error("it is not asked at first")
		}
		time.Sleep(time.Hour)
		if c.strayed() {
			t.Error("it is asked though both clocks went on alike")
		}
		for _, moved := range []time.Duration{time.Millisecond, -time.Second, time.Hour} {
			c.apart.Add(int64(moved))
			if !c.strayed() {
				t.Errorf("it is not asked after the wall clock has moved by %v", moved)
			}
			if c.strayed() {
				t.Error("it is asked twice")
			}
		}
	})
}
