package sqlstore

import (
	"math"
	"testing"
	"time"
)

// Converting a duration to µs and back should not overflow. Micros should round up.
func TestMicros(t *testing.T) {
	const most = math.MaxInt64 / 1000
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, 1000: 1, 1001: 2, time.Second: 1e6, math.MaxInt64 - 1: most + 1, math.MaxInt64: most + 1, -1: 0, -2000: -2,
	} {
		if have := Micros(d); have != want {
			t.Errorf("Micros(%d): %d, want %d", d, have, want)
		}
	}
	for micros, want := range map[int64]time.Duration{0: 0, 1: 1000, most: most * 1000, most + 1: most * 1000, math.MaxInt64: most * 1000} {
		if have := Duration(micros); have != want {
			t.Errorf("Duration(%d): %d, want %d", micros, have, want)
		}
	}
}
