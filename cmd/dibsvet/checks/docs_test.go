package checks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// declarations contains the declarations for the examples in docs/dibsvet.md.
const declarations = `package example

import (
	"context"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

var locks = dibs.New(memstore.New())

func count(ctx context.Context) error  { return ctx.Err() }
func report(ctx context.Context) error { return ctx.Err() }
`

var (
	section = regexp.MustCompile(`(?m)^## (\w+)$`)
	example = regexp.MustCompile("(?s)```go\n(func (wrong|right)\\(.*?)```")
)

// Each check should have a section in docs/dibsvet.md. dibsvet should find a mistake in its wrong
// example, and none in its right example.
func TestExamplesOfTheDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/dibsvet.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := exampleModule(t, string(page))
	found := findings(t, dir, checks.All(func() bool { return true }))
	for _, a := range checks.All(nil) {
		if got, want := fmt.Sprint(found[a.Name+"/wrong"]), "["+a.Name+"]"; got != want {
			t.Errorf("the wrong example of %s: findings of %s, want %s", a.Name, got, want)
		}
		if got, ok := found[a.Name+"/right"]; !ok || len(got) > 0 {
			t.Errorf("the right example of %s: exists: %v, findings of %s, want none", a.Name, ok, got)
		}
	}
}

// exampleModule writes each example to a package CHECK/wrong or CHECK/right in a new module.
func exampleModule(t *testing.T, page string) (dir string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example\n\ngo 1.26.0\n")
	write(t, filepath.Join(dir, "go.work"), "go 1.26.0\n\nuse (\n\t.\n\t"+root+"\n)\n")
	headings := section.FindAllStringSubmatchIndex(page, -1)
	for i, at := range headings {
		end := len(page)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		for _, match := range example.FindAllStringSubmatch(page[at[1]:end], -1) {
			pkg := filepath.Join(dir, page[at[2]:at[3]], match[2])
			write(t, filepath.Join(pkg, "declarations.go"), declarations)
			write(t, filepath.Join(pkg, "example.go"), "package example\n\n"+imports(match[1])+match[1])
		}
	}
	return dir
}

// imports returns the imports for an example.
func imports(example string) string {
	var b strings.Builder
	for name, path := range map[string]string{
		"context": "context", "sql": "database/sql", "errors": "errors", "time": "time", "dibs": "github.com/dibslock/dibs",
	} {
		if strings.Contains(example, name+".") {
			fmt.Fprintf(&b, "import %q\n", path)
		}
	}
	return b.String()
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// findings returns the names of the checks with reports, for each package in a module. The check
// nofence counts in its own section only: it is off by default.
func findings(t *testing.T, dir string, all []*analysis.Analyzer) map[string][]string {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.LoadSyntax, Dir: dir,
		Env: append(os.Environ(), "GO111MODULE=on", "GOPROXY=off", "GOWORK="+filepath.Join(dir, "go.work")),
	}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if packages.PrintErrors(pkgs) > 0 {
		t.Fatal("an example does not compile")
	}
	graph, err := checker.Analyze(all, pkgs, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, pkg := range pkgs {
		found[strings.TrimPrefix(pkg.PkgPath, "example/")] = nil
	}
	for _, action := range graph.Roots {
		if action.Err != nil {
			t.Errorf("%v: %v", action, action.Err)
		}
		name := strings.TrimPrefix(action.Package.PkgPath, "example/")
		if action.Analyzer.Name == "nofence" && !strings.HasPrefix(name, "nofence/") {
			continue
		}
		for range action.Diagnostics {
			found[name] = append(found[name], action.Analyzer.Name)
		}
	}
	return found
}
