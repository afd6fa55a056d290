package dibsprom_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/memstore"
	"github.com/prometheus/client_golang/prometheus"
)

type traceKey struct{}

// exemplars returns the exemplars in dibs_acquire_seconds, each as its labels.
func exemplars(t *testing.T, reg *prometheus.Registry) (all []map[string]string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "dibs_acquire_seconds" {
			continue
		}
		for _, b := range family.Metric[0].GetHistogram().Bucket {
			labels := make(map[string]string)
			for _, l := range b.GetExemplar().GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if b.Exemplar != nil {
				all = append(all, labels)
			}
		}
	}
	return all
}

// TraceID's context contains values added by an AcquireStart hook, such as a span. An id rejected
// by the Prometheus client is dropped, and its call still counts.
func TestExemplars(t *testing.T) {
	for _, native := range []bool{false, true} {
		for id, want := range map[string]bool{
			"4bf92f3577b34da6a3ce929d0e0e4736": true,
			strings.Repeat("ü", 120):           true,
			strings.Repeat("ü", 121):           false,
			"\xff":                             false,
			"":                                 false,
		} {
			reg := prometheus.NewRegistry()
			m := newMetrics(t, reg, dibsprom.Config{NativeHistograms: native, TraceID: func(ctx context.Context) string {
				id, _ := ctx.Value(traceKey{}).(string)
				return id
			}})
			span := dibs.Hooks{AcquireStart: func(ctx context.Context, _ dibs.AcquireStart) context.Context {
				return context.WithValue(ctx, traceKey{}, id)
			}}
			locks := dibs.New(memstore.New(), dibs.Observe(m.Hooks()), dibs.Observe(span))
			lease, err := locks.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lease.Unlock()
			locks.Close()
			have := exemplars(t, reg)
			if found := len(have) == 1 && maps.Equal(have[0], map[string]string{"trace_id": id}); found != want || !want && len(have) > 0 {
				t.Errorf("native %v, id %q: exemplars %v, want one: %v", native, id, have, want)
			}
			wantFigures(t, reg, map[string]float64{"dibs_acquire_seconds{n,mutex,acquired}": 1, "dibs_held_seconds{n,mutex,released}": 1})
		}
	}
}
