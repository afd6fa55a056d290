package natskv_test

import (
	"os"
	"strings"
	"testing"
)

// The page must show excerpts from the store, and from its tests.
func TestPageShowsTheStore(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/kvstore.md")
	swap := function(t, "natskv.go", "(b *bucket) Swap")
	tests := function(t, "natskv_test.go", "TestBucket") + "\n" + function(t, "natskv_test.go", "TestStore")
	for _, block := range []string{swap, tests} {
		if !strings.Contains(page, "```go\n"+block+"```") {
			t.Errorf("docs/kvstore.md does not have these lines in a block:\n%s", block)
		}
	}
}

// function returns a function's text in a file.
func function(t *testing.T, file, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, file), "\nfunc "+name+"(")
	body, _, ended := strings.Cut(rest, "\n}\n")
	if !found || !ended {
		t.Fatalf("no function %s in %s", name, file)
	}
	return "func " + name + "(" + body + "\n}\n"
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
