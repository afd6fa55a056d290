package dibsotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace/noop"
)

// measure returns a client option, and a function that returns the measurements as lines: the
// instrument, the attributes, and the sum or the number of values.
func measure(t *testing.T, c dibsotel.Config) (dibs.Option, func() string) {
	reader := sdkmetric.NewManualReader()
	c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
	return dibs.Observe(dibsotel.Hooks(c)), func() string {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				lines = append(lines, points(m)...)
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
}

func points(m metricdata.Metrics) (lines []string) {
	line := func(set attribute.Set, value any) {
		lines = append(lines, fmt.Sprintf("%s[%s] %s = %v", m.Name, m.Unit, text(set.ToSlice()), value))
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			line(p.Attributes, p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			line(p.Attributes, fmt.Sprintf("%d values, %.1f", p.Count, p.Sum))
		}
	}
	return lines
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observe, measured := measure(t, dibsotel.Config{})
		store := memstore.New()
		locks := newLocks(t, store, observe)
		first := must[*dibs.Lease](t)(locks.Mutex("order:1").Lock(t.Context()))
		if _, err := locks.Mutex("order:1").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Fatal(err)
		}
		done := make(chan *dibs.Lease)
		go func() { done <- must[*dibs.Lease](t)(locks.Mutex("order:1").Lock(t.Context())) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want(t, "while one holds and one waits", measured(), strings.TrimSpace(`
dibs.acquire.duration[s] dibs.class=order:* dibs.kind=mutex dibs.result=acquired = 1 values, 0.0
dibs.acquire.duration[s] dibs.class=order:* dibs.kind=mutex dibs.result=busy = 1 values, 0.0
dibs.holding[{lease}] dibs.class=order:* = 1
dibs.waiting[{call}] dibs.class=order:* = 1`))
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		second := <-done
		must[*dibs.Lease](t)(locks.Mutex("order:2").Lock(t.Context(), dibs.MaxHold(time.Second)))
		time.Sleep(12 * time.Second) // one renewal
		if err := second.Unlock(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		lines := strings.Split(measured(), "\n")
		for _, line := range []string{
			"dibs.acquire.duration[s] dibs.class=order:* dibs.kind=mutex dibs.result=notified = 1 values, 3.0",
			"dibs.held.duration[s] dibs.class=order:* dibs.end=lost dibs.kind=mutex = 1 values, 1.0",
			"dibs.held.duration[s] dibs.class=order:* dibs.end=released dibs.kind=mutex = 2 values, 15.0",
			"dibs.holding[{lease}] dibs.class=order:* = 0",
			"dibs.lost[{lease}] dibs.class=order:* dibs.reason=max_hold = 1",
			"dibs.waiting[{call}] dibs.class=order:* = 0",
		} {
			if !slices.Contains(lines, line) {
				t.Errorf("no line %q in\n%s", line, strings.Join(lines, "\n"))
			}
		}
		for _, prefix := range []string{"dibs.headroom[1]", "dibs.renew.duration[s]"} {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, prefix) }) {
				t.Errorf("no %s in\n%s", prefix, strings.Join(lines, "\n"))
			}
		}
	})
}

func TestMetricsOfFailedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observe, measured := measure(t, dibsotel.Config{})
		store := failing("extend", &driver.UnavailableError{Op: "extend", Cause: errors.New("down")})
		locks := newLocks(t, store, observe)
		must[*dibs.Lease](t)(locks.Mutex("order:1").Lock(t.Context(), dibs.TTL(3*time.Second)))
		time.Sleep(5 * time.Second)
		if have := measured(); !strings.Contains(have, "dibs.renew.failed[{failure}] dibs.class=order:* = ") ||
			!strings.Contains(have, "dibs.lost[{lease}] dibs.class=order:* dibs.reason=expired = 1") {
			t.Errorf("have\n%s", have)
		}
	})
}

// An attached lease is not counted in dibs.holding: its acquire was elsewhere.
func TestMetricsOfAnAttachedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observe, measured := measure(t, dibsotel.Config{})
		store := memstore.New()
		lease := must[*dibs.Lease](t)(newLocks(t, store).Mutex("order:1").Lock(t.Context()))
		attached := must[*dibs.Lease](t)(newLocks(t, store, observe).Attach(t.Context(), lease.Handle()))
		if err := attached.Unlock(); err != nil {
			t.Fatal(err)
		}
		want(t, "metrics", measured(), "dibs.held.duration[s] dibs.class=order:* dibs.end=released dibs.kind=attached = 1 values, 0.0")
	})
}

// Clients should be counted together. A dropped event should leave no error behind: two beginnings
// count once, and an end without a beginning does not count.
func TestDegraded(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	client := func() func(context.Context, dibs.Degraded) {
		return dibsotel.Hooks(dibsotel.Config{TracerProvider: noop.NewTracerProvider(), MeterProvider: provider}).Degraded
	}
	first, second := client(), client()
	begins, ends := dibs.Degraded{Err: errors.New("no subscription")}, dibs.Degraded{}
	for i, step := range []struct {
		degraded func(context.Context, dibs.Degraded)
		event    dibs.Degraded
		want     int
	}{
		{first, begins, 1}, {second, begins, 2}, {first, ends, 1},
		{second, begins, 1}, {second, ends, 0}, {second, ends, 0}, {first, begins, 1},
	} {
		step.degraded(t.Context(), step.event)
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		have := strings.Join(points(all.ScopeMetrics[0].Metrics[0]), "\n")
		want(t, fmt.Sprint("after step ", i), have, fmt.Sprint("dibs.degraded[{client}]  = ", step.want))
	}
}

// Many distinct names should make at most MaxClasses classes, and "other": a million names with
// DIBS_LONG. These take about 10 s with the race detector, and 1 s without.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	calls := 100_000
	if redistest.Long() {
		calls = 1_000_000
	}
	reader := sdkmetric.NewManualReader()
	hooks := dibsotel.Hooks(dibsotel.Config{
		MaxClasses: 5, Class: func(name string) string { return name },
		TracerProvider: noop.NewTracerProvider(), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	for i := range calls {
		info := dibs.LockInfo{Names: []string{strconv.Itoa(i)}, Kind: dibs.KindMutex}
		hooks.AcquireEnd(t.Context(), dibs.AcquireEnd{LockInfo: info})
		hooks.Released(t.Context(), dibs.Released{LockInfo: info})
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	acquired := uint64(0)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if lines := points(m); len(lines) != 6 { // 5 classes and other
			t.Errorf("%d series of %s, want 6:\n%s", len(lines), m.Name, strings.Join(lines, "\n"))
		}
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "dibs.acquire.duration" {
			for _, p := range data.DataPoints {
				acquired += p.Count
			}
		}
	}
	if n := len(all.ScopeMetrics[0].Metrics); n != 3 || acquired != uint64(calls) { // acquired, held, holding
		t.Errorf("%d instruments and %d calls, want 3 and %d", n, acquired, calls)
	}
}
