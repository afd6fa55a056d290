package wire

import (
	"math"
	"testing"
	"time"
)

// A duration becomes ms, rounded up, without an overflow.
func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3600_000, math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		if have := Milliseconds(d); have != want {
			t.Errorf("%d: %d ms, want %d", d, have, want)
		}
	}
}
