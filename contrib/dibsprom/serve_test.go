package dibsprom_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A quorumOf makes a store's states a quorum's.
type quorumOf struct{ *driver.Full }

func (s quorumOf) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	states, err := s.Full.InspectAll(ctx, names)
	for i := range states {
		states[i].Nodes = make([]driver.NodeState, 3)
	}
	return states, err
}

// queued returns a store with a lock.
func queued(t *testing.T) driver.Store {
	t.Helper()
	store := memstore.New()
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	if _, err := locks.Mutex("order:1").TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return quorumOf{driver.Complete(store)}
}

// metricsOfServe returns the metrics on the page about a store, after it has seen a lease begin.
func metricsOfServe(t *testing.T, store driver.Store) string {
	t.Helper()
	h := dashboard.New(store, dashboard.Config{Every: 100 * time.Millisecond})
	get := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		return w.Body.String()
	}
	get()
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	if _, err := locks.Mutex("order:2").TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // between polls
		if text := get(); strings.Contains(text, "dibs_acquire_seconds_count") {
			return text
		}
	}
	t.Fatal("no lease was seen")
	return ""
}

// Metrics also on the page should be in the same form. So both can be added up.
func TestMetricsOfServe(t *testing.T) {
	text := metricsOfServe(t, queued(t))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	page, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	reg := prometheus.NewRegistry()
	use(newMetrics(t, reg, dibsprom.Config{}).Hooks(), "order:1")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	form := func(f *dto.MetricFamily) (labels []string, limits []float64) {
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		for _, b := range f.Metric[0].GetHistogram().GetBucket() {
			if b.GetUpperBound() < 1e300 { // a parser adds +Inf
				limits = append(limits, b.GetUpperBound())
			}
		}
		slices.Sort(labels)
		return labels, limits
	}
	var same []string
	for _, f := range families {
		other, found := page[f.GetName()]
		if !found {
			continue
		}
		same = append(same, f.GetName())
		labels, limits := form(f)
		otherLabels, otherLimits := form(other)
		if f.GetType() != other.GetType() || !slices.Equal(labels, otherLabels) || !slices.Equal(limits, otherLimits) {
			t.Errorf("%s: of the page %v %v %v, of a client %v %v %v", f.GetName(), other.GetType(), otherLabels, otherLimits, f.GetType(), labels, limits)
		}
	}
	if have := strings.Join(same, " "); have != "dibs_acquire_seconds dibs_holding dibs_lost_total dibs_waiting" {
		t.Errorf("both have %s", have)
	}
	if out := promtool(t, text, "check", "metrics"); out != "" {
		t.Error(out)
	}
}

// scrapesOfServe returns the configuration in docs/dashboard.md.
func scrapesOfServe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```yaml\nscrape_configs:")
	block, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("no scrape_configs in docs/dashboard.md")
	}
	return "scrape_configs:" + block
}

// Prometheus reads the page with the documented configuration.
func TestPrometheusScrapesServe(t *testing.T) {
	t.Parallel()
	bin := program(t, "prometheus")
	scrapes := scrapesOfServe(t)
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(config, []byte(scrapes), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "config", config)

	page := httptest.NewServer(dashboard.New(queued(t), dashboard.Config{}))
	t.Cleanup(page.Close)
	const target = "127.0.0.1:7007"
	if !strings.Contains(scrapes, target) {
		t.Fatalf("no %s in %s", target, scrapes)
	}
	server := startPrometheus(t, bin, strings.Replace(scrapes, target, page.Listener.Addr().String(), 1))
	server.wait(t, `dibs_holding{class="order:*", job="dibs-serve"} == 1`)
	server.wait(t, `dibs_store_up{job="dibs-serve"} == 1`)
}
