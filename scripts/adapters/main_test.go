package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// The package comment, go.mod and the table in docs/adapters.md should agree.
func TestDocumentedVersions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "adapters.md"))
	if err != nil {
		t.Fatal(err)
	}
	adapters, err := readAdapters(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(adapters) < 10 {
		t.Fatalf("only %d adapters", len(adapters))
	}
	for _, a := range adapters {
		if want := a.required(); want != a.oldest {
			t.Errorf("%s: the package comment says %s, but go.mod requires %s %s", a.name, a.oldest, a.library, want)
		}
		versions := a.oldest + " to " + a.newest
		switch {
		case a.library == standard:
			versions = "Go " + versions
		case a.oldest == a.newest:
			versions = a.oldest
		}
		if row := tableRow(string(page), a.name); !strings.HasSuffix(row, "| "+versions+" |") {
			t.Errorf("docs/adapters.md has %q, want the versions %q", row, versions)
		}
	}
}

// tableRow returns an adapter's row.
func tableRow(page, name string) string {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| `"+name+"` |") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func TestParseVersions(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]string{
		"It locks. Tested with v1.2.0 to v1.10.3 of example.com/lib/v2. More.": "example.com/lib/v2 v1.2.0 v1.10.3",
		"It locks. Tested with v3.0.1 of example.com/lib.":                     "example.com/lib v3.0.1 v3.0.1",
		"It locks. Tested with Go 1.26.0 to 1.27.4.":                           "Go 1.26.0 1.27.4",
		"It locks. Tested with v1.2.0 to v1.3.0.":                              "",
		"It locks.": "",
	} {
		a, err := parseVersions(comment)
		got := ""
		if err == nil {
			got = fmt.Sprint(a.library, " ", a.oldest, " ", a.newest)
		}
		if got != want {
			t.Errorf("%s: %q, %v; want %q", comment, got, err, want)
		}
	}
}

// The workspace should select go.mod's version, or a newer version required by a program. Modules
// released with the library should have the same version.
func TestWorkspace(t *testing.T) {
	t.Chdir(root)
	a := adapter{
		name: "lib", dir: "contrib/lib", library: "example.com/lib", oldest: "v1.2.0", newest: "v1.9.0",
		module: module{Require: []struct{ Path, Version string }{
			{"example.com/lib", "v1.2.0"}, {"example.com/lib/sdk", "v1.2.0"}, {"example.com/other", "v1.0.0"},
		}},
	}
	for version, want := range map[string]string{
		"v1.2.0": "",
		"v1.9.0": "module example.com/user\n\ngo 1.26.0\nrequire example.com/lib v1.9.0\nrequire example.com/lib/sdk v1.9.0\n",
	} {
		dir := t.TempDir()
		if err := a.writeWorkspace(dir, version); err != nil {
			t.Fatal(err)
		}
		user, _ := os.ReadFile(filepath.Join(dir, "user", "go.mod")) // absent without a newer version
		if string(user) != want {
			t.Errorf("%s: the program has %q, want %q", version, user, want)
		}
		work, err := os.ReadFile(filepath.Join(dir, "go.work"))
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(string(work), filepath.Join(dir, "user")); has != (want != "") {
			t.Errorf("%s: the workspace is %s", version, work)
		}
	}
}
