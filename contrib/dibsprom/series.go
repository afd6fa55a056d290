package dibsprom

import (
	"sync/atomic"

	"github.com/dibslock/dibs/observe/outcome"
	"github.com/prometheus/client_golang/prometheus"
)

// A series contains a class's values for each metric. Gauges and counters exist from the beginning,
// so that the first loss is an increase. A histogram has many series itself, so it exists only
// after its first value. A series is safe for concurrent use.
type series struct {
	class            string
	holding, waiting prometheus.Gauge
	renewFailed      prometheus.Counter
	lost             [outcome.Reasons]prometheus.Counter

	acquire [outcome.Kinds][outcome.Results]observer
	held    [outcome.Kinds][outcome.Ends]observer
}

func (m *Metrics) newSeries(class string) *series {
	s := &series{
		class:       class,
		holding:     m.holding.WithLabelValues(class),
		waiting:     m.waiting.WithLabelValues(class),
		renewFailed: m.renewFailed.WithLabelValues(class),
	}
	for r := range outcome.Reasons {
		s.lost[r] = m.lost.WithLabelValues(class, r.String())
	}
	return s
}

// An observer is a class's histogram, or nil before its first value.
type observer struct {
	atomic.Pointer[prometheus.Observer]
}

func (o *observer) create(from *prometheus.HistogramVec, labels ...string) prometheus.Observer {
	created := from.WithLabelValues(labels...)
	o.Store(&created) // two goroutines can do this; from returns the same histogram for both
	return created
}

func (m *Metrics) acquireObserver(s *series, k outcome.Kind, r outcome.Result) prometheus.Observer {
	o := &s.acquire[k][r]
	if created := o.Load(); created != nil {
		return *created
	}
	return o.create(m.acquire, s.class, k.String(), r.String())
}

func (m *Metrics) heldObserver(s *series, k outcome.Kind, e outcome.End) prometheus.Observer {
	o := &s.held[k][e]
	if created := o.Load(); created != nil {
		return *created
	}
	return o.create(m.held, s.class, k.String(), e.String())
}
