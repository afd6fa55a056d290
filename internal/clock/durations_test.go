package clock

import (
	"math"
	"testing"
	"time"
)

// Sums and products should never change their sign.
func TestDurationsSaturate(t *testing.T) {
	const most, least = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, test := range []struct{ have, want time.Duration }{
		{Add(1, 2), 3},
		{Add(-1, 2), 1},
		{Add(most, 0), most},
		{Add(most, 1), most},
		{Add(1, most), most},
		{Add(most, most), most},
		{Add(most, -1), most - 1},
		{Add(most, least), -1},
		{Add(least, 0), least},
		{Add(least, -1), least},
		{Add(-1, least), least},
		{Add(least, least), least},
		{Times(5, 3), 15},
		{Times(5, -3), -15},
		{Times(5, most/5), most / 5 * 5},
		{Times(5, most/5+1), most},
		{Times(5, most), most},
		{Times(5, least/5-1), least},
		{Times(5, least), least},
		{Times(1, most), most},
	} {
		if test.have != test.want {
			t.Errorf("%d, want %d", test.have, test.want)
		}
	}
}
