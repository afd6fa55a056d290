package dibsprom_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/observe/outcome"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// use calls each hook, so that each metric has a series.
func use(hooks dibs.Hooks, name string) {
	info := dibs.LockInfo{Names: []string{name}, Kind: dibs.KindMutex, Token: "secret-token", Label: "secret-label", Weight: 1, Limit: 1}
	hooks.Queued(nil, dibs.Queued{LockInfo: info, Holder: "secret-holder", Position: 1})
	hooks.AcquireEnd(nil, dibs.AcquireEnd{LockInfo: info, Waited: time.Second, Queued: true, Notified: true, Handoff: time.Millisecond})
	hooks.Renewed(context.Background(), dibs.Renewed{Leases: 1, Took: time.Millisecond, Headroom: 0.66})
	hooks.RenewFailed(nil, dibs.RenewFailed{LockInfo: info, Err: errors.New("secret-error")})
	hooks.Degraded(context.Background(), dibs.Degraded{Err: errors.New("secret-error")})
	hooks.AcquireEnd(nil, dibs.AcquireEnd{LockInfo: info})
	hooks.Lost(nil, dibs.Lost{LockInfo: info, Reason: dibs.ReasonExpired, Held: time.Second})
	hooks.Released(nil, dibs.Released{LockInfo: info, Held: time.Second})
}

// A million distinct names make at most MaxClasses classes, and "other".
func TestSeriesAreBounded(t *testing.T) {
	letters := func(i int) string { // a class for each i
		var b strings.Builder
		for range 5 {
			b.WriteByte(byte('a' + i%26))
			i /= 26
		}
		return b.String()
	}
	for what, c := range map[string]struct {
		config  dibsprom.Config
		name    func(i int) string
		names   int
		classes int
	}{
		"ids":     {dibsprom.Config{}, func(i int) string { return fmt.Sprint("order:", i) }, 1_000_000, 2},
		"words":   {dibsprom.Config{}, letters, 1_000_000, 201},
		"own":     {dibsprom.Config{MaxClasses: 7, Class: strings.Clone}, strconv.Itoa, 10_000, 8},
		"no text": {dibsprom.Config{MaxClasses: 7, Class: func(name string) string { return name + "\xff" }}, strconv.Itoa, 10_000, 8},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			hooks := newMetrics(t, reg, c.config).Hooks()
			for i := range c.names {
				info := dibs.LockInfo{Names: []string{c.name(i)}, Kind: dibs.KindMutex}
				hooks.AcquireEnd(t.Context(), dibs.AcquireEnd{LockInfo: info})
				hooks.Released(t.Context(), dibs.Released{LockInfo: info})
			}
			for metric, each := range map[string]int{"dibs_holding": 1, "dibs_waiting": 1, "dibs_lost_total": 6, "dibs_renew_failed_total": 1} {
				if n, err := testutil.GatherAndCount(reg, metric); n != each*c.classes || err != nil {
					t.Errorf("%d series of %s, %v, want %d", n, metric, err, each*c.classes)
				}
			}
			all := 0.0
			for _, metric := range []string{"dibs_acquire_seconds", "dibs_held_seconds"} {
				if n, err := testutil.GatherAndCount(reg, metric); n > c.classes || err != nil {
					t.Errorf("%d series of %s, %v, want at most %d", n, metric, err, c.classes)
				}
			}
			for name, value := range figures(t, reg) {
				if strings.HasPrefix(name, "dibs_acquire_seconds") {
					all += value
				}
			}
			if all != float64(c.names) {
				t.Errorf("%v calls in all classes, want %d", all, c.names)
			}
			wantBalanced(t, reg)
		})
	}
}

// The hooks for a lock and an unlock should allocate nothing.
func TestHooksDoNotAllocate(t *testing.T) {
	hooks := newMetrics(t, prometheus.NewRegistry(), dibsprom.Config{}).Hooks()
	info := dibs.LockInfo{Names: []string{"order:4711"}, Kind: dibs.KindOnce}
	pair := func() {
		hooks.Queued(nil, dibs.Queued{LockInfo: info})
		hooks.AcquireEnd(nil, dibs.AcquireEnd{LockInfo: info, Waited: time.Second, Queued: true, Notified: true, Handoff: time.Second})
		hooks.Released(nil, dibs.Released{LockInfo: info, Held: time.Second})
	}
	if n := testing.AllocsPerRun(1000, pair); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// The Prometheus client's linter should report nothing, and no metric should contain a secret.
func TestLint(t *testing.T) {
	for _, native := range []bool{false, true} {
		reg := prometheus.NewPedanticRegistry()
		use(newMetrics(t, reg, dibsprom.Config{NativeHistograms: native}).Hooks(), "order:1")
		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) > 0 {
			t.Errorf("problems %v, %v", problems, err)
		}
		have := exposition(t, reg)
		if strings.Contains(have, "secret") {
			t.Errorf("a secret in\n%s", have)
		}
		families, err := reg.Gather()
		if err != nil || len(families) != 10 {
			t.Errorf("%d metrics, %v, want 10", len(families), err)
		}
		for _, f := range families {
			if f.GetName() != "dibs_acquire_seconds" && f.GetName() != "dibs_held_seconds" {
				continue
			}
			for _, m := range f.Metric {
				if has := m.GetHistogram().Schema != nil; has != native || len(m.GetHistogram().Bucket) != 12 {
					t.Errorf("%s: native buckets %v, want %v; %d others, want 12", f.GetName(), has, native, len(m.GetHistogram().Bucket))
				}
			}
		}
	}
}

// A second New on a Registerer fails, with advice. A single Metrics' hooks serve two Clients, and
// so does a Registerer with a label for each.
func TestTwoClients(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg, dibsprom.Config{})
	_, err := dibsprom.New(reg, dibsprom.Config{MaxClasses: 7})
	var already prometheus.AlreadyRegisteredError
	if !errors.As(err, &already) || already.ExistingCollector != m || !strings.Contains(err.Error(), "Hooks") {
		t.Errorf("second New: %v", err)
	}
	lockOnce := func(t *testing.T, m *dibsprom.Metrics) {
		t.Helper()
		l, err := newLocks(t, m, memstore.New()).Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Unlock()
	}
	lockOnce(t, m)
	lockOnce(t, m)
	wantFigures(t, reg, map[string]float64{"dibs_acquire_seconds{n,mutex,acquired}": 2, "dibs_held_seconds{n,mutex,released}": 2})
	if !reg.Unregister(m) {
		t.Error("not unregistered")
	}
	reg = prometheus.NewRegistry()
	for _, client := range []string{"a", "b"} {
		lockOnce(t, newMetrics(t, prometheus.WrapRegistererWith(prometheus.Labels{"client": client}, reg), dibsprom.Config{}))
	}
	wantFigures(t, reg, map[string]float64{
		"dibs_acquire_seconds{a,n,mutex,acquired}": 1, "dibs_held_seconds{a,n,mutex,released}": 1,
		"dibs_acquire_seconds{b,n,mutex,acquired}": 1, "dibs_held_seconds{b,n,mutex,released}": 1,
	})
}

func TestConfig(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for want, config := range map[string]dibsprom.Config{
		"AcquireBuckets [1 1]: the limits do not grow":    {AcquireBuckets: []float64{1, 1}},
		"AcquireBuckets [NaN]: the limits do not grow":    {AcquireBuckets: []float64{nan}},
		"HeldBuckets [1 NaN]: the limits do not grow":     {HeldBuckets: []float64{1, nan}},
		"HeldBuckets [3 2]: the limits do not grow":       {HeldBuckets: []float64{3, 2}},
		"HeldBuckets [+Inf +Inf]: the limits do not grow": {HeldBuckets: []float64{inf, inf}},
	} {
		if _, err := dibsprom.New(prometheus.NewRegistry(), config); err == nil || err.Error() != "dibsprom: "+want {
			t.Errorf("have error %v, want %s", err, want)
		}
	}
	good := dibsprom.Config{MaxClasses: 1, AcquireBuckets: []float64{0, 1}, HeldBuckets: []float64{-1, inf}, NativeHistograms: true}
	use(newMetrics(t, prometheus.NewRegistry(), good).Hooks(), "n")
	if _, err := dibsprom.New(nil, dibsprom.Config{}); err == nil {
		t.Error("no error without a Registerer")
	}
	other := prometheus.NewRegistry()
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "dibs_holding", Help: "another help"}))
	if _, err := dibsprom.New(other, dibsprom.Config{}); err == nil {
		t.Error("no error beside another metric of this name")
	}
}

// Lock names do not harm the text that Prometheus reads.
func TestHostileNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg, dibsprom.Config{})
	names := []string{"a\nb", `a"b`, `a\b`, "\xff\xfe", "\u202e", "a\x00b", "dibs_holding 7\n", strings.Repeat("x", 10_000), "ü"}
	for _, name := range names {
		use(m.Hooks(), name)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(exposition(t, reg)))
	if err != nil {
		t.Fatal(err)
	}
	if have, want := len(parsed["dibs_holding"].Metric), len(names)+1; have != want { // and "other"
		t.Errorf("%d classes, want %d", have, want)
	}
	for _, metric := range parsed["dibs_holding"].Metric {
		if len(metric.Label) != 1 || len(metric.Label[0].GetValue()) > 64 {
			t.Errorf("labels %v", metric.Label)
		}
	}
}

// exposition returns the text read by Prometheus.
func exposition(t testing.TB, reg *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// The exported words must be the labels'.
func TestWords(t *testing.T) {
	words := func(n int, word func(i int) string) (all []string) {
		for i := range n {
			all = append(all, word(i))
		}
		return all
	}
	for _, c := range []struct{ labels, words []string }{
		{words(int(outcome.Results), func(i int) string { return outcome.Result(i).String() }), []string{
			dibsprom.ResultAcquired, dibsprom.ResultNotified, dibsprom.ResultBusy, dibsprom.ResultTimeout, dibsprom.ResultCanceled,
			dibsprom.ResultUnavailable, dibsprom.ResultClosed, dibsprom.ResultWrongType, dibsprom.ResultError,
		}},
		{words(int(outcome.Ends), func(i int) string { return outcome.End(i).String() }), []string{
			dibsprom.EndReleased, dibsprom.EndLost, dibsprom.EndUnavailable,
		}},
		{words(int(outcome.Reasons), func(i int) string { return outcome.Reason(i).String() }), []string{
			string(dibs.ReasonExpired), string(dibs.ReasonMissing), string(dibs.ReasonRevoked), string(dibs.ReasonMaxHold), string(dibs.ReasonClosed), dibsprom.ReasonOther,
		}},
	} {
		if !slices.Equal(c.labels, c.words) {
			t.Errorf("the labels are %q, and the exported words %q", c.labels, c.words)
		}
	}
}
