package dibsprom

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// A Config contains the settings for New. The zero Config contains the defaults.
type Config struct {
	// Class returns a lock name's class. Many goroutines at once call it, at each lock event. Its
	// results are cut to 64 bytes of valid UTF-8. Nil means the rule in the package documentation.
	Class func(name string) string

	// MaxClasses is the largest number of classes, not counting "other". Zero or less means 200.
	MaxClasses int

	// AcquireBuckets and HeldBuckets are the upper limits, in seconds, of the buckets in
	// dibs_acquire_seconds and dibs_held_seconds. They must be in increasing order. Empty means 12
	// buckets, from 0.5 ms to 2 minutes and from 1 ms to 2 hours.
	AcquireBuckets, HeldBuckets []float64

	// NativeHistograms adds native histograms to dibs_acquire_seconds and dibs_held_seconds,
	// each with at most 100 buckets of 10 %. A Prometheus that scrapes native histograms drops
	// AcquireBuckets and HeldBuckets, which grafana.json uses. To keep these buckets, set
	// always_scrape_classic_histograms in Prometheus.
	NativeHistograms bool

	// TraceID returns the trace's id in a call's context, or "" for none. It is the call's exemplar
	// trace_id in dibs_acquire_seconds. Prometheus receives exemplars only with
	// promhttp.HandlerOpts.EnableOpenMetrics. Many goroutines at once call TraceID, at the end of
	// each acquiring call. An id is dropped if it is longer than 120 characters or not valid UTF-8.
	// Nil means no exemplars, at no cost.
	TraceID func(ctx context.Context) string
}

// withDefaults returns the Config with its defaults, or an error.
func (c Config) withDefaults() (Config, error) {
	if len(c.AcquireBuckets) == 0 {
		c.AcquireBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120}
	}
	if len(c.HeldBuckets) == 0 {
		c.HeldBuckets = []float64{0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200}
	}
	if err := checkBuckets(c.AcquireBuckets); err != nil {
		return c, fmt.Errorf("dibsprom: AcquireBuckets %v: %w", c.AcquireBuckets, err)
	}
	if err := checkBuckets(c.HeldBuckets); err != nil {
		return c, fmt.Errorf("dibsprom: HeldBuckets %v: %w", c.HeldBuckets, err)
	}
	return c, nil
}

// checkBuckets returns why the Prometheus client would panic, or nil.
func checkBuckets(limits []float64) error {
	last := math.Inf(-1)
	for _, limit := range limits {
		if !(limit > last) { // also if it is not a number
			return errors.New("the limits do not grow")
		}
		last = limit
	}
	return nil
}
