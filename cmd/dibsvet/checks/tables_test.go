package checks_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// Each check must have at least 15 mistakes and 15 correct forms in testdata.
func TestTables(t *testing.T) {
	const enough = 15
	for name := range byName(checks.All(nil)) {
		mistakes, correct := 0, 0
		files, err := filepath.Glob(filepath.Join("testdata", name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			mistakes += strings.Count(string(text), "// want `")
			correct += correctIn(t, string(text))
		}
		if mistakes < enough || correct < enough {
			t.Errorf("%s: %d mistakes and %d correct forms, want %d of each", name, mistakes, correct, enough)
		}
	}
}

// correctIn counts the functions that use package dibs without a finding, and the statements in a
// function that makes requests.
func correctIn(t *testing.T, text string) (n int) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		body := text[set.Position(fn.Pos()).Offset:set.Position(fn.End()).Offset]
		switch lines := strings.Count(body, "\n"); {
		case strings.Contains(body, "// want `") || !strings.Contains(body, "dibs."):
		case fn.Type.Results == nil && lines > 3: // a list of requests
			n += lines
		default:
			n++
		}
	}
	return n
}

// The check badname should know each option in package dibs: testdata should contain a wrong use.
// Observe accepts everything.
func TestEveryOptionIsKnown(t *testing.T) {
	t.Parallel()
	pkgs, err := packages.Load(&packages.Config{Mode: packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedName | packages.NeedSyntax | packages.NeedFiles}, "github.com/dibslock/dibs")
	if err != nil || packages.PrintErrors(pkgs) > 0 {
		t.Fatalf("package dibs: %v", err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "badname", "bad.go"))
	if err != nil {
		t.Fatal(err)
	}
	scope := pkgs[0].Types.Scope()
	option, found := scope.Lookup("Option").Type(), 0
	for _, name := range scope.Names() {
		fn, ok := scope.Lookup(name).(*types.Func)
		if !ok || !fn.Exported() || fn.Signature().Results().Len() != 1 || !types.Identical(fn.Signature().Results().At(0).Type(), option) {
			continue
		}
		found++
		if name != "Observe" && !strings.Contains(string(text), "dibs."+name+"(") {
			t.Errorf("badname/bad.go has no dibs.%s", name)
		}
	}
	if found < 11 {
		t.Errorf("%d options found", found)
	}
}
