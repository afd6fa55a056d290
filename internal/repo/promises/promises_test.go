// Package promises lists the tests that should fail when a promise in docs/guarantees.md is broken.
package promises

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

//go:embed promises.txt
var list string

const root = "../../.."

// Each listed test should exist.
func TestListedTestsExist(t *testing.T) {
	t.Parallel()
	_, list, _ := strings.Cut(list, "\n\n") // without the introduction
	known := map[string]map[string]bool{}
	listed := 0
	for line := range strings.Lines(list) {
		pkg, tests, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found { // a promise's name
			continue
		}
		if known[pkg] == nil {
			known[pkg] = testsOf(t, pkg)
		}
		for test := range strings.SplitSeq(tests, ", ") {
			listed++
			if !exists(known[pkg], test) {
				t.Errorf("package %s has no test %s", pkg, test)
			}
		}
	}
	if listed < 300 {
		t.Errorf("only %d tests are listed", listed)
	}
}

// exists reports whether a package contains a test with this name or beginning.
func exists(tests map[string]bool, name string) bool {
	prefix, isPrefix := strings.CutSuffix(name, "*")
	name, _, _ = strings.Cut(name, "/") // without the subtest
	for test := range tests {
		if test == name || isPrefix && strings.HasPrefix(test, prefix) {
			return true
		}
	}
	return false
}

// testsOf returns the functions and the strings in a package and the packages within it: a case's
// name is a string. The root package is without the others.
func testsOf(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	dir := filepath.Join(root, pkg)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && pkg == "." && path != dir:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") && pkg != "storetest":
			return nil
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				tests[n.Name.Name] = true
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && pkg == "storetest" {
					tests[s] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
