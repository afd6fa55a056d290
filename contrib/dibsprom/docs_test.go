package dibsprom_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/observe/outcome"
	"github.com/prometheus/client_golang/prometheus"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The comment of the package has all metrics, and docs/observe.md no other ones, and all reasons.
func TestDocumentedMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	use(newMetrics(t, reg, dibsprom.Config{}).Hooks(), "order:1")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names, documented []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, match := range regexp.MustCompile(`(?m)^//\t(dibs_\w+)`).FindAllStringSubmatch(read(t, "doc.go"), -1) {
		documented = append(documented, match[1])
	}
	slices.Sort(documented)
	if slices.Sort(names); !slices.Equal(documented, names) {
		t.Errorf("doc.go has %q, want %q", documented, names)
	}
	guide := read(t, "..", "..", "docs", "observe.md")
	for _, name := range regexp.MustCompile(`\bdibs_[a-z_]+`).FindAllString(guide, -1) {
		if !slices.Contains(names, name) {
			t.Errorf("docs/observe.md has %s", name)
		}
	}
	for r := range outcome.Reasons {
		if !strings.Contains(guide, "`"+r.String()+"`") {
			t.Errorf("docs/observe.md lacks the reason %s", r)
		}
	}
}
