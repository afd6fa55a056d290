package dibsotel

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// found returns the first group of all matches in a part of a file, sorted.
func found(t *testing.T, file, from, to, pattern string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(text), from)
	if !ok {
		t.Fatalf("%s has no %q", file, from)
	}
	part, _, _ = strings.Cut(part, to)
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(part, -1) {
		all = append(all, match[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The comment of the package has all instruments, and no others.
func TestDocumentedInstruments(t *testing.T) {
	want := found(t, "metrics.go", "func newMeter", "\n}", `\("(dibs\.[a-z.]+)", "`)
	if len(want) != 10 {
		t.Errorf("%d instruments, want 10: %q", len(want), want)
	}
	if have := found(t, "doc.go", "// # Metrics", "// # Versions", `//\t(dibs\.[a-z.]+)`); !slices.Equal(have, want) {
		t.Errorf("the comment of the package has %q, want %q", have, want)
	}
}
