package dibsprom

import (
	"context"
	"errors"
	"fmt"

	"github.com/dibslock/dibs/observe/classes"
	"github.com/prometheus/client_golang/prometheus"
)

// A Metrics contains the metrics of a process's Clients. It is a prometheus.Collector, so
// prometheus.Registerer.Unregister accepts it. It is safe for concurrent use.
type Metrics struct {
	classes *classes.Set[*series]
	traceID func(context.Context) string // may be nil

	acquire, held            *prometheus.HistogramVec
	holding, waiting         *prometheus.GaugeVec
	lost, renewFailed        *prometheus.CounterVec
	renew, headroom, handoff prometheus.Histogram
	degraded                 prometheus.Gauge
}

// New creates the metrics and registers them.
//
// Call New once for a Registerer, and Metrics.Hooks once for each Client. The metrics then count
// all these Clients together. A second New on the same Registerer returns an error that wraps a
// prometheus.AlreadyRegisteredError. For separate metrics for each Client, call New for each
// Client. Pass a Registerer from prometheus.WrapRegistererWith with a different label value.
//
// New also returns an error if reg is nil, or if the buckets in the Config are not in increasing
// order.
func New(reg prometheus.Registerer, config Config) (*Metrics, error) {
	if reg == nil {
		return nil, errors.New("dibsprom: the Registerer is nil")
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	m := newMetrics(config)
	if err := reg.Register(m); err != nil {
		var already prometheus.AlreadyRegisteredError
		if errors.As(err, &already) {
			return nil, fmt.Errorf("dibsprom: %w: call Hooks of the first Metrics for each Client, or use prometheus.WrapRegistererWith", err)
		}
		return nil, fmt.Errorf("dibsprom: %w", err)
	}
	return m, nil
}

func newMetrics(config Config) *Metrics {
	m := &Metrics{
		traceID: config.TraceID,
		acquire: histograms(config, "dibs_acquire_seconds",
			"Duration of calls that acquire a lock, by the class of its name, its kind, and the result.",
			config.AcquireBuckets, "class", "kind", "result"),
		held: histograms(config, "dibs_held_seconds",
			"Duration of leases that have ended, by the class of the name, the kind, and how they ended.",
			config.HeldBuckets, "class", "kind", "end"),
		holding:     gauges("dibs_holding", "Number of leases that are held now, by the class of the name.", "class"),
		waiting:     gauges("dibs_waiting", "Number of calls that are in a wait queue now, by the class of the name.", "class"),
		lost:        counters("dibs_lost_total", "Number of leases that ended before their release, by the class of the name and the reason.", "class", "reason"),
		renewFailed: counters("dibs_renew_failed_total", "Number of renewals whose outcome is unknown, by the class of the name.", "class"),
		renew: histogram("dibs_renew_seconds", "Duration of the store calls that renew a batch of leases.",
			0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
		headroom: histogram("dibs_headroom_ratio", "Share of the time that was left when a lease was renewed, the smallest of a batch. Normally 0.66; 0 is a loss.",
			0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7),
		handoff: histogram("dibs_handoff_seconds", "Duration of hand-offs, from the request of a release to the lease of the notified waiter.",
			0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5),
		degraded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dibs_degraded", Help: "Number of Clients whose store cannot notify waiters now, so that they poll.",
		}),
	}
	m.classes = classes.NewSet(config.Class, config.MaxClasses, m.newSeries)
	return m
}

// Buckets in a native histogram: each is 10 % wider than the previous.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

func histograms(config Config, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	if config.NativeHistograms {
		opts.NativeHistogramBucketFactor, opts.NativeHistogramMaxBucketNumber = nativeFactor, nativeBuckets
	}
	return prometheus.NewHistogramVec(opts, labels)
}

func histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// each calls f with each metric.
func (m *Metrics) each(f func(prometheus.Collector)) {
	for _, c := range [...]prometheus.Collector{
		m.acquire, m.held, m.holding, m.waiting, m.lost, m.renewFailed, m.renew, m.headroom, m.handoff, m.degraded,
	} {
		f(c)
	}
}

// Describe sends the metrics' descriptions. It is for a prometheus.Registerer.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.each(func(c prometheus.Collector) { c.Describe(to) })
}

// Collect sends the metrics. It is for a prometheus.Registerer.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.each(func(c prometheus.Collector) { c.Collect(to) })
}
