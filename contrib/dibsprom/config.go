package dibsprom

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// A Config contains the settings for New. Zero fields mean the defaults.
type Config struct {
	// Class returns the class of a lock's name: the value of the label class in the metrics. Many
	// goroutines at once call it, at each lock event. A result is cut to 64 bytes of valid UTF-8. If
	// Class is nil, the rule in the package documentation applies.
	Class func(name string) string

	// MaxClasses is the largest number of classes. Further names get the class "other", which does not
	// count. Zero or less means 200.
	MaxClasses int

	// AcquireBuckets and HeldBuckets are the upper limits, in seconds, of the buckets in
	// dibs_acquire_seconds and dibs_held_seconds. Each list must be in increasing order; otherwise New
	// returns an error. An empty list means 12 buckets: from 0.5 ms to 2 minutes for AcquireBuckets,
	// and from 1 ms to 2 hours for HeldBuckets.
	AcquireBuckets, HeldBuckets []float64

	// NativeHistograms adds native histograms to dibs_acquire_seconds and dibs_held_seconds. Each has
	// at most 100 buckets, and a bucket is about 10 % wider than the previous. If Prometheus scrapes
	// native histograms, it drops the buckets of AcquireBuckets and HeldBuckets, but grafana.json
	// needs them. To keep them, set always_scrape_classic_histograms in Prometheus.
	NativeHistograms bool

	// TraceID returns the id of the trace in a call's context, or "" for none. The id becomes the
	// exemplar trace_id of the call in dibs_acquire_seconds. Prometheus receives exemplars only with
	// promhttp.HandlerOpts.EnableOpenMetrics. Many goroutines at once call TraceID, at the end of each
	// call that acquires a lock. An id is dropped if it is longer than 120 characters or not valid
	// UTF-8. If TraceID is nil, there are no exemplars and no cost.
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
