package dibsprom_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
	"github.com/prometheus/client_golang/prometheus"
)

func newMetrics(t testing.TB, reg prometheus.Registerer, config dibsprom.Config) *dibsprom.Metrics {
	t.Helper()
	m, err := dibsprom.New(reg, config)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newLocks returns a client with metrics, which is closed when the test ends.
func newLocks(t testing.TB, m *dibsprom.Metrics, store driver.Store) *dibs.Client {
	t.Helper()
	locks := dibs.New(store, dibs.Observe(m.Hooks()))
	t.Cleanup(func() { locks.Close() })
	return locks
}

// figures returns the non-zero series, such as dibs_holding{order:*}. A histogram's figure is the
// number of its values.
func figures(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.Metric {
			name := family.GetName()
			labels := make(map[string]string)
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			var values []string
			for _, label := range []string{"client", "class", "kind", "result", "end", "reason"} {
				if v, ok := labels[label]; ok {
					values = append(values, v)
				}
			}
			if len(values) > 0 {
				name += "{" + strings.Join(values, ",") + "}"
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				have[name] = value
			}
		}
	}
	return have
}

// wantFigures checks the non-zero series, without those for renewals: their number depends on how
// long a test sleeps.
func wantFigures(t testing.TB, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	have := figures(t, reg)
	delete(have, "dibs_renew_seconds")
	delete(have, "dibs_headroom_ratio")
	if !maps.Equal(have, want) {
		t.Errorf("have %v\nwant %v", have, want)
	}
}

// wantBalanced checks that all gauges are zero.
func wantBalanced(t testing.TB, reg prometheus.Gatherer) {
	t.Helper()
	for name, value := range figures(t, reg) {
		if strings.HasPrefix(name, "dibs_holding") || strings.HasPrefix(name, "dibs_waiting") || strings.HasPrefix(name, "dibs_degraded") {
			t.Errorf("%s is %v at the end", name, value)
		}
	}
}

// A faulty is a store with failing operations, and a test's events.
type faulty struct {
	*servicetest.Faulty
	events chan driver.Event // for the first Watch, if it is not nil
}

func newFaulty() *faulty { return &faulty{Faulty: servicetest.NewFaulty(memstore.New())} }

func (f *faulty) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	if f.events == nil {
		return f.Store.Watch(ctx, client, busy, on)
	}
	for {
		select {
		case e := <-f.events:
			on(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unavailable is an unresponsive store's error.
func unavailable() error {
	return &driver.UnavailableError{Op: "test", Name: "order:1", Cause: context.DeadlineExceeded}
}
