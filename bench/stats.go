package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the smallest value that at least a share of p of all values
// do not exceed. It is NaN if there is none: zero would look like a measurement.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the middle, or the mean of the two that are.
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

// maximum is for what must not happen even once: a median would hide it.
func maximum(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values)
}

// jain is Jain's index of fairness: 1 if all got the same, 1/n if one got all. It
// is 1 if nobody got anything, which is fair.
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

// starved counts who got less than a tenth of the mean.
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
