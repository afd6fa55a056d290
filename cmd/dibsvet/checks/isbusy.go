package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

const isBusyDoc = `find comparisons of wrapped errors

The errors of dibs are wrapped: ErrBusy is in a *BusyError, and Do joins the error of its
function with that of the release. So err == dibs.ErrBusy and err.(*dibs.BusyError) fail
when they should succeed.

The check reports ==, != and switch with an error of dibs, and type assertions and type
switches with an error type of dibs. A method Is may compare its argument: errors.Is
calls it. The fix uses errors.Is or errors.AsType. A type switch has no fix.`

func newIsBusy(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "isbusy", allFiles, isBusyDoc, func(f *finder) {
		types := []ast.Node{(*ast.BinaryExpr)(nil), (*ast.SwitchStmt)(nil), (*ast.TypeAssertExpr)(nil), (*ast.TypeSwitchStmt)(nil)}
		for cursor := range f.root.Preorder(types...) {
			switch n := cursor.Node().(type) {
			case *ast.BinaryExpr:
				f.checkComparison(cursor, n)
			case *ast.SwitchStmt:
				f.checkSwitch(cursor, n)
			case *ast.TypeAssertExpr:
				f.checkAssertion(cursor, n)
			case *ast.TypeSwitchStmt:
				f.checkTypeSwitch(cursor, n)
			}
		}
	})
}

func (f *finder) checkComparison(cursor inspector.Cursor, n *ast.BinaryExpr) {
	if n.Op != token.EQL && n.Op != token.NEQ || f.inMethodIs(cursor) {
		return
	}
	err, sentinel := n.X, n.Y
	if f.isSentinel(err) {
		err, sentinel = sentinel, err
	}
	if !f.isSentinel(sentinel) || !f.mayBeWrapped(err) {
		return
	}
	is := "errors.Is(" + f.text(err) + ", " + f.text(sentinel) + ")"
	if n.Op == token.NEQ {
		is = "!" + is
	}
	f.report(analysis.Diagnostic{
		Pos: n.Pos(), End: n.End(),
		Message:        "errors of dibs are wrapped, so " + n.Op.String() + " does not find them: use " + is,
		SuggestedFixes: f.fix(n, "use errors.Is", "errors", edit(n, is)),
	})
}

func (f *finder) checkSwitch(cursor inspector.Cursor, n *ast.SwitchStmt) {
	if n.Tag == nil || f.inMethodIs(cursor) || !f.mayBeWrapped(n.Tag) {
		return
	}
	var first ast.Expr
	var edits []analysis.TextEdit
	for _, clause := range n.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			if f.isSentinel(e) && first == nil {
				first = e
			}
			condition := "errors.Is(" + f.text(n.Tag) + ", " + f.text(e) + ")"
			if f.isNil(e) {
				condition = f.text(n.Tag) + " == nil"
			}
			edits = append(edits, edit(e, condition))
		}
	}
	if first == nil {
		return
	}
	var fixes []analysis.SuggestedFix
	if _, ok := n.Tag.(*ast.Ident); ok { // it may be evaluated for each case
		fixes = f.fix(n, "use errors.Is", "errors", append(edits, analysis.TextEdit{Pos: n.Tag.Pos(), End: n.Body.Pos()})...)
	}
	f.report(analysis.Diagnostic{
		Pos: first.Pos(), End: first.End(),
		Message:        "errors of dibs are wrapped, so this case does not find them: use case errors.Is(" + f.text(n.Tag) + ", " + f.text(first) + ")",
		SuggestedFixes: fixes,
	})
}

func (f *finder) checkAssertion(cursor inspector.Cursor, n *ast.TypeAssertExpr) {
	if n.Type == nil || !f.isErrorOfDibs(n.Type) || !f.mayBeWrapped(n.X) || f.inMethodIs(cursor) {
		return
	}
	as := "errors.AsType[" + f.text(n.Type) + "](" + f.text(n.X) + ")"
	var fixes []analysis.SuggestedFix
	if assign, ok := cursor.Parent().Node().(*ast.AssignStmt); ok && len(assign.Lhs) == 2 && len(assign.Rhs) == 1 {
		fixes = f.fix(n, "use errors.AsType", "errors", edit(n, as))
	}
	f.report(analysis.Diagnostic{
		Pos: n.Pos(), End: n.End(),
		Message:        "errors of dibs are wrapped, so this type assertion does not find them: use " + as,
		SuggestedFixes: fixes,
	})
}

func (f *finder) checkTypeSwitch(cursor inspector.Cursor, n *ast.TypeSwitchStmt) {
	if !f.mayBeWrapped(switchedValue(n)) || f.inMethodIs(cursor) {
		return
	}
	for _, clause := range n.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			if f.isErrorOfDibs(e) {
				f.report(analysis.Diagnostic{
					Pos: e.Pos(), End: e.End(),
					Message: "errors of dibs are wrapped, so this case does not find them: use errors.AsType[" + f.text(e) + "]",
				})
			}
		}
	}
}

// mayBeWrapped reports whether an expression is an error that another can wrap. Other types'
// values, such as from recover, are not. The wanted error in a test's table is itself a sentinel.
func (f *finder) mayBeWrapped(e ast.Expr) bool {
	t := f.info.TypeOf(e)
	if t == nil || !types.Implements(t, errorInterface()) || f.isSentinel(e) || f.isNil(e) {
		return false
	}
	v := f.variable(e)
	if v == nil {
		return true
	}
	of := f.assignedTo(v)
	return of == nil || slices.ContainsFunc(of.values, func(value ast.Expr) bool { return !f.isSentinel(value) && !f.isNil(value) })
}

// isSentinel reports whether an expression is a dibs error variable, such as ErrBusy.
func (f *finder) isSentinel(e ast.Expr) bool {
	v := f.variable(e)
	return v != nil && fromDibs(v) && v.Parent() == v.Pkg().Scope() && strings.HasPrefix(v.Name(), "Err") && isError(v.Type())
}

// isErrorOfDibs reports whether a type expression is a dibs error type.
func (f *finder) isErrorOfDibs(e ast.Expr) bool {
	t := f.info.TypeOf(e)
	if t == nil || types.IsInterface(t) || !types.Implements(t, errorInterface()) {
		return false
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && fromDibs(named.Obj())
}

func errorInterface() *types.Interface {
	return types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
}

// inMethodIs reports whether a node is in a method Is or As. Package errors calls them for each
// error in a chain.
func (f *finder) inMethodIs(cursor inspector.Cursor) bool {
	for enclosing := range cursor.Enclosing((*ast.FuncDecl)(nil)) {
		method := enclosing.Node().(*ast.FuncDecl)
		return method.Recv != nil && (method.Name.Name == "Is" || method.Name.Name == "As")
	}
	return false
}
