package checks

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

const nestedDoc = `find a lock inside another one that could be acquired together

Two programs that acquire the same names in different orders wait for each other. All
acquires several names in one step, so it cannot deadlock.

The check reports Lock and Do of a mutex, a multi-lock or a writer, inside a function given
to Do of one of these, if All could replace them:

  - both names are known before the outer Do;
  - both locks are of the same client;
  - the inner lock is always acquired: not in an if, a loop or a function literal, and not
    after a return.

Readers, permits, elections, periodic jobs, Try calls and Reentrant are left out: All
cannot replace them.`

func newNested(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "nested", notInTests, nestedDoc, func(f *finder) {
		for cursor, call := range f.calls() {
			f.checkNested(cursor, call)
		}
	})
}

func (f *finder) checkNested(cursor inspector.Cursor, inner *ast.CallExpr) {
	t := f.target(inner)
	d := dibsFuncOf(t.fn)
	if !d.is("Mutex", "Lock", "Do") && !d.is("MultiMutex", "Lock", "Do") && !d.is("RWMutex", "Lock", "Do") {
		return
	}
	literal, call, ok := enclosingLiteral(cursor)
	if !ok {
		return
	}
	l, ok := f.lockedFunc(call)
	if !ok || l.literal != literal || l.dibs.is("RWMutex", "RDo") {
		return
	}
	first, ok1 := f.construction(l.lock)
	second, ok2 := f.construction(t.receiver)
	if !ok1 || !ok2 || !canJoin(first) || !canJoin(second) || !f.sameValue(first.client, second.client) || f.namesOverlap(first, second) {
		return
	}
	if options, known := f.options(inner); !known || hasOption(options, "Reentrant") {
		return
	}
	if f.usesInside(second.call, literal) || returnsBefore(literal, inner) {
		return
	}
	node := methodAndArguments(inner)
	f.report(analysis.Diagnostic{
		Pos: node.Pos(), End: node.End(),
		Message: "a lock inside another one deadlocks with a program that acquires them in another order: acquire both names with All",
	})
}

// enclosingLiteral returns the function literal around a call that is always executed, and
// the call that has the literal as an argument.
func enclosingLiteral(cursor inspector.Cursor) (*ast.FuncLit, *ast.CallExpr, bool) {
	for at := cursor; ; at = at.Parent() {
		parent := at.Parent()
		switch n := parent.Node().(type) {
		case *ast.FuncLit:
			call, ok := parent.Parent().Node().(*ast.CallExpr)
			return n, call, ok
		case *ast.IfStmt:
			if at.Node() != n.Init && at.Node() != ast.Node(n.Cond) {
				return nil, nil, false
			}
		case nil, *ast.FuncDecl, *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause, *ast.CommClause, *ast.GoStmt, *ast.DeferStmt:
			return nil, nil, false
		case *ast.BinaryExpr:
			if (n.Op == token.LAND || n.Op == token.LOR) && at.Node() == ast.Node(n.Y) {
				return nil, nil, false
			}
		}
	}
}

// canJoin reports whether All can replace a primitive.
func canJoin(c constructed) bool {
	return !c.reader && (c.kind == "Mutex" || c.kind == "RWMutex" || c.kind == "All")
}

// sameValue reports whether two expressions denote the same variable, through the same fields.
func (f *finder) sameValue(a, b ast.Expr) bool {
	a, b = ast.Unparen(a), ast.Unparen(b)
	v := f.variable(a)
	if v == nil || v != f.variable(b) {
		return false
	}
	x, ok1 := a.(*ast.SelectorExpr)
	y, ok2 := b.(*ast.SelectorExpr)
	if ok1 && ok2 && v.IsField() {
		return f.sameValue(x.X, y.X)
	}
	return ok1 == ok2
}

// namesOverlap reports whether two primitives have a name in common, as far as the package shows
// it. Then the inner call returns ErrReentrant, which is another mistake.
func (f *finder) namesOverlap(a, b constructed) bool {
	for _, x := range f.namesOf(a) {
		for _, y := range f.namesOf(b) {
			constants := f.constant(x) != nil && f.constant(y) != nil
			if constants && constant.Compare(f.constant(x), token.EQL, f.constant(y)) || f.text(x) == f.text(y) {
				return true
			}
		}
	}
	return false
}

func (f *finder) namesOf(c constructed) []ast.Expr {
	if c.kind == "All" {
		return c.call.Args
	}
	return c.call.Args[:min(1, len(c.call.Args))]
}

// usesInside reports whether an expression uses something that is declared in a literal, and
// so is not known before the call of the literal.
func (f *finder) usesInside(e ast.Expr, literal *ast.FuncLit) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return !found
		}
		if v, ok := f.info.Uses[id].(*types.Var); ok && literal.Pos() <= v.Pos() && v.Pos() < literal.End() {
			found = true
		}
		return !found
	})
	return found
}

// returnsBefore reports whether a function may return before it comes to a call.
func returnsBefore(literal *ast.FuncLit, call *ast.CallExpr) bool {
	found := false
	ast.Inspect(literal.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			found = found || n.End() < call.Pos()
		}
		return !found
	})
	return found
}
