package checks

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

const lostLeaseDoc = `find leases that are not unlocked

A lease is renewed until Unlock. A lease that nobody unlocks keeps its name until the
process ends or the Client is closed.

The check reports a lease of Lock, TryLock or Campaign that is discarded, overwritten, or
not unlocked on some path to a return. On a path on which the error of the call is not nil
there is no lease.

Unlock and Detach end the duty. So does passing the lease on: a return, an argument, an
assignment, or a function literal that uses it. A function that closes a Client is not
checked, because Close releases all leases.

The fix adds defer lease.Unlock() after the check of the error.`

func newLostLease(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "lostlease", notInTests, lostLeaseDoc, func(f *finder) {
		for cursor, call := range f.calls() {
			if givesLease(f.target(call).fn) {
				f.checkLease(cursor, call)
			}
		}
	})
}

// checkLease checks the use of the lease that a call returns.
func (f *finder) checkLease(cursor inspector.Cursor, call *ast.CallExpr) {
	body, ok := enclosingFunction(cursor)
	if !ok || f.closesClient(body.block) {
		return
	}
	var left []ast.Expr
	switch parent := cursor.Parent().Node().(type) {
	case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
		f.reportDiscarded(call)
		return
	case *ast.AssignStmt:
		left = parent.Lhs
	case *ast.ValueSpec:
		for _, name := range parent.Names {
			left = append(left, name)
		}
	}
	if len(left) != 2 {
		return // passed on
	}
	id, ok := left[0].(*ast.Ident)
	switch {
	case !ok: // stored in a field or an element
	case id.Name == "_":
		f.reportDiscarded(call)
	default:
		f.checkVariable(cursor, body, id, left[1])
	}
}

func (f *finder) reportDiscarded(call *ast.CallExpr) {
	node := methodAndArguments(call)
	f.report(analysis.Diagnostic{
		Pos: node.Pos(), End: node.End(),
		Message: "the lease is discarded, so nothing can unlock it: the lock is held until the process ends",
	})
}

// checkVariable checks the paths from a lease's assignment to the function's ends.
func (f *finder) checkVariable(cursor inspector.Cursor, body function, lease *ast.Ident, err ast.Expr) {
	v := f.variable(lease)
	if v == nil || !body.scope(f.info).Contains(v.Pos()) {
		return // another function's variable, which may unlock it
	}
	p := &leasePath{
		finder: f, lease: v, err: f.variable(err), assignment: cursor.Parent().Node(),
		isResult: isResult(body.signature(f.info), v),
	}
	end := p.search(body.block)
	if end == nil {
		return
	}
	node := methodAndArguments(cursor.Node().(*ast.CallExpr))
	d := analysis.Diagnostic{
		Pos: node.Pos(), End: node.End(),
		Message: fmt.Sprintf("the lease %s is not unlocked on all paths: line %d is reached without %[1]s.Unlock()",
			v.Name(), f.pass.Fset.Position(end.Pos()).Line),
	}
	if after, ok := f.afterErrorCheck(cursor, body, p.err); ok {
		d.SuggestedFixes = []analysis.SuggestedFix{{
			Message:   "defer " + v.Name() + ".Unlock()",
			TextEdits: []analysis.TextEdit{{Pos: after, End: after, NewText: []byte("\ndefer " + v.Name() + ".Unlock()")}},
		}}
	}
	f.report(d)
}

// afterErrorCheck returns the end of the statement after the assignment, if it returns when err is
// not nil. There a defer runs once for each lease: it is not in a loop.
func (f *finder) afterErrorCheck(cursor inspector.Cursor, body function, err *types.Var) (token.Pos, bool) {
	statement := cursor.Parent()
	if _, ok := statement.Node().(*ast.AssignStmt); !ok || err == nil {
		return 0, false
	}
	if block, ok := statement.Parent().Node().(*ast.BlockStmt); !ok || block != body.block {
		return 0, false
	}
	next, ok := statement.NextSibling()
	if !ok {
		return 0, false
	}
	check, ok := next.Node().(*ast.IfStmt)
	if !ok || check.Init != nil || check.Else != nil || len(check.Body.List) == 0 {
		return 0, false
	}
	condition, ok := check.Cond.(*ast.BinaryExpr)
	if !ok || condition.Op != token.NEQ || f.variable(condition.X) != err || !f.isNil(condition.Y) {
		return 0, false
	}
	_, returns := check.Body.List[len(check.Body.List)-1].(*ast.ReturnStmt)
	return check.End(), returns
}

// closesClient reports whether a function closes a Client.
func (f *finder) closesClient(body *ast.BlockStmt) bool {
	closes := false
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && f.dibsCall(call).is("Client", "Close") {
			closes = true
		}
		return !closes
	})
	return closes
}

// isResult reports whether a variable is a named result.
func isResult(signature *types.Signature, v *types.Var) bool {
	return signature != nil && slices.Contains(slices.Collect(signature.Results().Variables()), v)
}
