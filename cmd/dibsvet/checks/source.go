package checks

import (
	"go/ast"
	"go/constant"
	"go/format"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

// A source is a package to check: the data that all checks need, computed once.
type source struct {
	info       *types.Info
	root       inspector.Cursor
	directives directives
	values     map[*types.Var]*assigned
	callbacks  bool // each function literal with a context counts as a function under a lock
}

// newSource returns the analyzer required by all checks. Its result is a *source, which is nil for
// a package that cannot use dibs. Tests of the checks on other programs inspect callbacks.
func newSource(callbacks bool) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:       "dibssource",
		Doc:        "what the checks of dibsvet need of a package",
		ResultType: reflect.TypeFor[*source](),
		Run: func(pass *analysis.Pass) (any, error) {
			if !callbacks && !reaches(pass.Pkg, dibsPath, map[*types.Package]bool{}) {
				return (*source)(nil), nil
			}
			s := &source{
				info:       pass.TypesInfo,
				root:       inspector.New(pass.Files).Root(), // not inspect.Analyzer, which would cost time in each package
				directives: findDirectives(pass.Fset, pass.Files),
				callbacks:  callbacks,
			}
			s.values = findAssignments(s)
			return s, nil
		},
	}
}

// reaches reports whether a package imports another, directly or not. So it can use that package's
// types without an import of its own.
func reaches(pkg *types.Package, path string, seen map[*types.Package]bool) bool {
	for _, imported := range pkg.Imports() {
		if seen[imported] {
			continue
		}
		seen[imported] = true
		if imported.Path() == path || reaches(imported, path, seen) {
			return true
		}
	}
	return false
}

// inTest reports whether a position is in a test: a test file, or a file with helpers, which
// imports package testing.
func (f *finder) inTest(at token.Pos) bool {
	file := f.file(at)
	return file != nil && (strings.HasSuffix(f.pass.Fset.File(at).Name(), "_test.go") ||
		slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == `"testing"` }))
}

// calls yields each call in the package.
func (s *source) calls() func(yield func(inspector.Cursor, *ast.CallExpr) bool) {
	return func(yield func(inspector.Cursor, *ast.CallExpr) bool) {
		for cursor := range s.root.Preorder((*ast.CallExpr)(nil)) {
			if !yield(cursor, cursor.Node().(*ast.CallExpr)) {
				return
			}
		}
	}
}

// variable returns an expression's variable or field, or nil.
func (s *source) variable(e ast.Expr) *types.Var {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, _ := s.info.ObjectOf(e).(*types.Var)
		return v
	case *ast.SelectorExpr:
		v, _ := s.info.ObjectOf(e.Sel).(*types.Var)
		return v
	}
	return nil
}

// constant returns an expression's constant value, or nil.
func (s *source) constant(e ast.Expr) constant.Value {
	return s.info.Types[e].Value
}

// isNil reports whether an expression is the built-in nil.
func (s *source) isNil(e ast.Expr) bool { return s.info.Types[e].IsNil() }

// text returns an expression's source text.
func (f *finder) text(e ast.Expr) string {
	var b strings.Builder
	if err := format.Node(&b, f.pass.Fset, e); err != nil {
		return types.ExprString(e)
	}
	return b.String()
}

// methodAndArguments returns a call without its receiver, which may be on another line.
func methodAndArguments(call *ast.CallExpr) ast.Node {
	selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return call
	}
	return &ast.CallExpr{Fun: selector.Sel, Lparen: call.Lparen, Args: call.Args, Ellipsis: call.Ellipsis, Rparen: call.Rparen}
}
