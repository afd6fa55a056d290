package dashboard

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An exposition is a text in Prometheus format, version 0.0.4.
type exposition struct{ bytes.Buffer }

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// family begins a metric's values.
func (e *exposition) family(name, kind, help string) {
	e.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
}

// value writes a value. labels are names and values in turn.
func (e *exposition) value(name string, v float64, labels ...string) {
	e.WriteString(name)
	separator := byte('{')
	for pair := range slices.Chunk(labels, 2) {
		e.WriteByte(separator)
		e.WriteString(pair[0] + `="` + labelEscapes.Replace(pair[1]) + `"`)
		separator = ','
	}
	if len(labels) > 0 {
		e.WriteByte('}')
	}
	e.WriteString(" " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

// one writes a metric without labels.
func (e *exposition) one(name, kind, help string, v float64) {
	e.family(name, kind, help)
	e.value(name, v)
}

func (e *exposition) histogram(name string, h *histogram, labels ...string) {
	bucket := func(limit string, n int) {
		e.value(name+"_bucket", float64(n), slices.Concat(labels, []string{"le", limit})...)
	}
	for i, limit := range bucketLimits {
		bucket(strconv.FormatFloat(limit, 'g', -1, 64), h.counts[i])
	}
	bucket("+Inf", h.all)
	e.value(name+"_sum", h.sum.Seconds(), labels...)
	e.value(name+"_count", float64(h.all), labels...)
}

// A histogram counts durations. Its buckets are the same as in a client's metrics, so that both can
// be added up.
type histogram struct {
	counts []int
	all    int
	sum    time.Duration
}

var bucketLimits = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120} // in seconds

func newHistogram() *histogram { return &histogram{counts: make([]int, len(bucketLimits))} }

func (h *histogram) add(d time.Duration) {
	h.all++
	h.sum += d
	for i, limit := range bucketLimits {
		if d.Seconds() <= limit {
			h.counts[i]++
		}
	}
}
