package dibs

import (
	"math"
	"testing"
	"time"
)

// Sums and products of durations never change their sign.
func TestDurationsSaturate(t *testing.T) {
	const most, least = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, test := range []struct{ have, want time.Duration }{
		{sum(1, 2), 3},
		{sum(-1, 2), 1},
		{sum(most, 0), most},
		{sum(most, 1), most},
		{sum(1, most), most},
		{sum(most, most), most},
		{sum(most, -1), most - 1},
		{sum(most, least), -1},
		{sum(least, 0), least},
		{sum(least, -1), least},
		{sum(-1, least), least},
		{sum(least, least), least},
		{times(5, 3), 15},
		{times(5, -3), -15},
		{times(5, most/5), most / 5 * 5},
		{times(5, most/5+1), most},
		{times(5, most), most},
		{times(5, least/5-1), least},
		{times(5, least), least},
		{times(1, most), most},
	} {
		if test.have != test.want {
			t.Errorf("%d, want %d", test.have, test.want)
		}
	}
}

// The limit of Close is in the future, however long the operation timeout is.
func TestCloseLimitIsInTheFuture(t *testing.T) {
	for _, timeout := range []time.Duration{time.Millisecond, 58 * 365 * 24 * time.Hour, farFuture, math.MaxInt64} {
		var l closeLimit
		l.begin(timeout)
		if left := time.Until(l.limit(timeout, times(2, timeout))); left <= 0 {
			t.Errorf("timeout %v: %v left", timeout, left)
		}
	}
}
