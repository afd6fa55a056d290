package dibsprom

import (
	"context"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// traceLabel is the exemplars' label.
const traceLabel = "trace_id"

// observe adds a value to a histogram, with ctx's trace id as its exemplar.
func (m *Metrics) observe(ctx context.Context, to prometheus.Observer, value float64) {
	if m.traceID == nil {
		to.Observe(value)
		return
	}
	id := m.traceID(ctx)
	with, can := to.(prometheus.ExemplarObserver)
	if !can || !isExemplar(id) {
		to.Observe(value)
		return
	}
	with.ObserveWithExemplar(value, prometheus.Labels{traceLabel: id})
}

// isExemplar reports whether a trace id can be an exemplar. The Prometheus client panics if
// it cannot.
func isExemplar(id string) bool {
	return id != "" && utf8.ValidString(id) && len(traceLabel)+utf8.RuneCountInString(id) <= prometheus.ExemplarMaxRunes
}
