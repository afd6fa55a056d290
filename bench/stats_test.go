package main

import (
	"math"
	"testing"
	"time"
)

func TestJain(t *testing.T) {
	for name, test := range map[string]struct {
		shares []float64
		want   float64
	}{
		"all equal":    {[]float64{7, 7, 7, 7}, 1},
		"one has all":  {[]float64{12, 0, 0, 0}, 0.25},
		"half have it": {[]float64{5, 5, 0, 0}, 0.5},
		"uneven":       {[]float64{1, 2, 3}, 36.0 / 42},
		"nobody":       {[]float64{0, 0}, 1},
		"alone":        {[]float64{3}, 1},
	} {
		if got := jain(test.shares); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: jain(%v) = %v, want %v", name, test.shares, got, test.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	values := []float64{50, 10, 40, 20, 30} // unsorted; percentile must not sort it
	for p, want := range map[float64]float64{0: 10, 0.2: 10, 0.21: 20, 0.5: 30, 0.99: 50, 1: 50} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %v of %v = %v, want %v", p, values, got, want)
		}
	}
	if values[0] != 50 {
		t.Error("percentile sorted its argument")
	}
	if got := percentile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("percentile of nothing = %v, want NaN", got)
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
	}
}

func TestStarved(t *testing.T) {
	if got := starved([]float64{100, 100, 100, 4, 0, 100}); got != 2 {
		t.Errorf("starved = %d, want 2", got)
	}
}

func TestHistory(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	h := history{Acquisitions: []acquisition{
		{Waiter: 1, Requested: ms(95), Begin: ms(112), Done: ms(122)}, // 2 ms after the previous release
		{Waiter: 0, Requested: ms(90), Begin: ms(95), Done: ms(110)},  // began before the window
		{Waiter: 1, Requested: ms(123), Begin: ms(124), Done: ms(134)},
		{Waiter: 0, Requested: ms(111), Begin: ms(130), Done: ms(140)}, // overlaps
		{Waiter: 2, Requested: ms(96)},                                 // never
		{Waiter: 1, Requested: ms(135), Begin: ms(201), Done: ms(202)}, // after the window
	}}
	got := h.figures(window{From: ms(100), To: ms(200)}, 3)
	for name, want := range map[string]float64{
		"acquisitions": 3, "acq/s": 30, "overlaps": 1, "self": 1.0 / 3, "starved": 1,
		"longest ms": 104, "p50 µs": -4000, "mean µs": -1000, "Jain": 9.0 / 15,
	} {
		if math.Abs(got[name]-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}
