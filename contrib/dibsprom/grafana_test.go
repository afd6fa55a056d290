package dibsprom_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	query "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/client_golang/prometheus"
)

// grafanaDashboard is the schema of dashboard files that older Grafana versions can also import.
// The SDK prefers its successor.
type grafanaDashboard = dashboard.Dashboard //nolint:staticcheck // deprecated for new programs, not as a format

// readDashboard decodes grafana.json by Grafana's schema, which rejects unknown fields. The strict
// decoder drops panels, so another decoder returns them.
func readDashboard(raw []byte) (d grafanaDashboard, err error) {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(query.VariantConfig())
	var strict grafanaDashboard
	var problems cog.BuildErrors
	if err := strict.UnmarshalJSONStrict(raw); err != nil && (!errors.As(err, &problems) || len(problems) > 0) {
		return d, err
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, err
	}
	return d, d.Validate()
}

// expressions returns all panels' PromQL expressions.
func expressions(t *testing.T, d grafanaDashboard) (all []string) {
	t.Helper()
	for _, p := range d.Panels {
		if p.Panel == nil || len(p.Panel.Targets) == 0 {
			t.Fatalf("panel %+v has no queries", p)
		}
		for _, target := range p.Panel.Targets {
			q, ok := target.(*query.Dataquery)
			if !ok {
				t.Fatalf("panel %s: query %T", *p.Panel.Title, target)
			}
			all = append(all, q.Expr)
		}
	}
	return all
}

func grafana(t *testing.T) (raw []byte, d grafanaDashboard) {
	t.Helper()
	raw, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	if d, err = readDashboard(raw); err != nil {
		t.Fatal(err)
	}
	return raw, d
}

func TestGrafanaSchema(t *testing.T) {
	raw, d := grafana(t)
	if len(d.Panels) != 12 {
		t.Errorf("%d panels, want 12", len(d.Panels))
	}
	for what, change := range map[string][2]string{
		"unknown field of a panel":   {`"gridPos"`, `"gridPosition"`},
		"unknown field of a query":   {`"legendFormat"`, `"legend"`},
		"unknown field of an option": {`"showLegend"`, `"show"`},
		"a number as a title":        {`"title": "dibs: locks"`, `"title": 7`},
	} {
		if _, err := readDashboard([]byte(strings.Replace(string(raw), change[0], change[1], 1))); err == nil {
			t.Errorf("%s: no error, so the check finds nothing", what)
		}
	}
}

// The dashboard and the alerts should use metrics exported by the package or dibs serve. Each of
// the package's metrics should be in a panel.
func TestMetricsOfFiles(t *testing.T) {
	reg := prometheus.NewRegistry()
	use(newMetrics(t, reg, dibsprom.Config{}).Hooks(), "order:1")
	exported := make(map[string]bool)
	for line := range strings.Lines(exposition(t, reg) + metricsOfServe(t, queued(t))) {
		if !strings.HasPrefix(line, "#") {
			exported[line[:strings.IndexAny(line, "{ ")]] = true
		}
	}
	_, d := grafana(t)
	alerts, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, text := range append(expressions(t, d), string(alerts), "label_values(dibs_holding, class)") {
		for _, name := range regexp.MustCompile(`\bdibs_\w+`).FindAllString(text, -1) {
			if !exported[name] {
				t.Errorf("%s is not exported", name)
			}
			for _, suffix := range []string{"_bucket", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			used[name] = true
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !used[f.GetName()] {
			t.Errorf("no panel shows %s", f.GetName())
		}
	}
}

// Prometheus accepts each expression in the dashboard.
func TestGrafanaExpressions(t *testing.T) {
	_, d := grafana(t)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: panels\n    rules:\n")
	all := expressions(t, d)
	for i, e := range all {
		e = strings.NewReplacer("$__rate_interval", "1m", "$class", ".*").Replace(e)
		quoted, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rules, "      - {record: 'panel:query%d', expr: %s}\n", i, quoted)
	}
	file := filepath.Join(t.TempDir(), "panels.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := promtool(t, "", "check", "rules", file); !strings.Contains(out, fmt.Sprintf("SUCCESS: %d rules found", len(all))) {
		t.Error(out)
	}
}
