package checks_test

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/dibslock/dibs/cmd/dibsvet/checks"
)

// Each fix must compile, alone and together with the others in its file. With DIBS_UPDATE=1 the
// test writes the .golden files in testdata.
func TestFixesCompile(t *testing.T) {
	t.Parallel()
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: "testdata"}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if packages.PrintErrors(pkgs) > 0 {
		t.Fatal("testdata does not compile")
	}
	graph, err := checker.Analyze(checks.All(func() bool { return true }), pkgs, nil)
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	for _, action := range graph.Roots {
		if action.Analyzer.Name != path.Base(action.Package.PkgPath) {
			continue
		}
		all := map[string][]analysis.TextEdit{} // for each file
		for _, d := range action.Diagnostics {
			for _, fix := range d.SuggestedFixes {
				applied++
				name := action.Package.Fset.File(d.Pos).Name()
				all[name] = append(all[name], fix.TextEdits...)
				at := action.Package.Fset.Position(d.Pos)
				if err := compileWith(action.Package, name, apply(t, action.Package.Fset, name, fix.TextEdits)); err != nil {
					t.Errorf("%s:%d: the fix %q does not compile: %v", name, at.Line, fix.Message, err)
				}
			}
		}
		for name, edits := range all {
			fixed := apply(t, action.Package.Fset, name, edits)
			if err := compileWith(action.Package, name, fixed); err != nil {
				t.Errorf("%s: all fixes together do not compile: %v", name, err)
			}
			if os.Getenv("DIBS_UPDATE") == "1" {
				writeGolden(t, name, fixed)
			}
		}
	}
	if applied < 40 {
		t.Errorf("%d fixes applied", applied)
	}
}

// apply returns a file with edits. Equal edits, such as for an import, count once.
func apply(t *testing.T, set *token.FileSet, name string, edits []analysis.TextEdit) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b analysis.TextEdit) int { return int(b.Pos - a.Pos) })
	for i, e := range edits {
		if i > 0 && e.Pos == edits[i-1].Pos && e.End == edits[i-1].End && string(e.NewText) == string(edits[i-1].NewText) {
			continue
		}
		start := set.Position(e.Pos).Offset
		end := start
		if e.End.IsValid() {
			end = set.Position(e.End).Offset
		}
		text = slices.Concat(text[:start], e.NewText, text[end:])
	}
	return text
}

// compileWith compiles a package with a file's new content.
func compileWith(pkg *packages.Package, changed string, text []byte) error {
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.CompiledGoFiles {
		var content any
		if name == changed {
			content = text
		}
		file, err := parser.ParseFile(set, name, content, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	config := types.Config{Importer: loaded(pkg.Imports)}
	_, err := config.Check(pkg.PkgPath, set, files, nil)
	return err
}

// loaded imports loaded packages.
type loaded map[string]*packages.Package

func (l loaded) Import(path string) (*types.Package, error) {
	if l[path] == nil { // a fix may import it
		pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadTypes}, path)
		if err != nil {
			return nil, err
		}
		return pkgs[0].Types, nil
	}
	return l[path].Types, nil
}

func writeGolden(t *testing.T, name string, text []byte) {
	t.Helper()
	code, err := format.Source(text)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name+".golden", string(code))
	t.Logf("%s.golden is written", filepath.Base(name))
}
