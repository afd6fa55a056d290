package dibsprom_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/observe/outcome"
	"github.com/prometheus/client_golang/prometheus"
)

// firstColumn returns the code in the first column of the table of docs/observe.md with this heading.
func firstColumn(t *testing.T, heading string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "observe.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| "+heading+" |")
	if !found {
		t.Fatalf("no table %q", heading)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range strings.Split(table, "\n")[2:] {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| `"), "`")
		all = append(all, cell)
	}
	return all
}

// The tables of docs/observe.md have the metrics and the values of their labels.
func TestDocumentedMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	use(newMetrics(t, reg, dibsprom.Config{}).Hooks(), "order:1")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names, results, ends, reasons []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for i := range outcome.Results {
		results = append(results, i.String())
	}
	for i := range outcome.Ends {
		ends = append(ends, i.String())
	}
	for i := range outcome.Reasons {
		reasons = append(reasons, i.String())
	}
	for heading, want := range map[string][]string{"metric": names, "`result`": results, "`end`": ends, "`reason`": reasons} {
		have := firstColumn(t, heading)
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("the table %s has %q, want %q", heading, have, want)
		}
	}
}
