package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the smallest value not exceeded by at least the fraction p of all values.
// Without values it returns NaN: zero would look like a measurement.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the middle value, or the mean of the two middle values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func mean(values []float64) float64 { return sum(values) / float64(len(values)) }

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// maximum returns the largest value. It is for events that should never happen: a median would hide
// them.
func maximum(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values)
}

// jain returns Jain's fairness index: 1 if all shares are equal, 1/n if a single share is
// everything. It returns 1 if all shares are zero.
func jain(shares []float64) float64 {
	squares := 0.0
	for _, s := range shares {
		squares += s * s
	}
	if squares == 0 {
		return 1
	}
	total := sum(shares)
	return total * total / (float64(len(shares)) * squares)
}

// starved counts the shares below a tenth of the mean.
func starved(shares []float64) (n int) {
	for _, s := range shares {
		if s < mean(shares)/10 {
			n++
		}
	}
	return n
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
