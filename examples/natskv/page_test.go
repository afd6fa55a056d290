package natskv_test

import (
	"os"
	"strings"
	"testing"
)

// The page shows the whole store, and the tests that run it.
func TestPageShowsTheStore(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/kvstore.md")
	tests := function(t, "TestBucket") + "\n" + function(t, "TestStore") + "\n" + function(t, "TestClocks") + "\n" + function(t, "TestHistory")
	for _, block := range []string{read(t, "natskv.go"), tests} {
		if !strings.Contains(page, "```go\n"+block+"```") {
			t.Errorf("docs/kvstore.md does not have these lines in a block:\n%s", block)
		}
	}
}

// function returns the text of a test in natskv_test.go.
func function(t *testing.T, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "natskv_test.go"), "\nfunc "+name+"(")
	body, _, ended := strings.Cut(rest, "\n}\n")
	if !found || !ended {
		t.Fatalf("no function %s", name)
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
