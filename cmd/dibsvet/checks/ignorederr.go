package checks

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

const ignoredErrDoc = `find errors that a program does not use, although they say that it holds no lock

Do returns an error if it has not called its function. Then nothing was done, and only the
error says so. Guard returns an error if the lock was lost, and Fence if there is no number
to compare. Lock returns an error and a nil lease, whose methods return zero.

The check reports

  - Do, Call, Run and Holds as a statement, also with go or defer;
  - Yield, Extend, Downgrade and TryUpgrade, and the guards of a transaction, as a statement;
  - a fence, a lease, or a result of Call that is used, with _ for its error.

_ = before a call says that the error is not needed, and is not reported. Neither is a
lease that is compared with nil. The check lostlease reports a discarded lease.`

func newIgnoredErr(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "ignorederr", notInTests, ignoredErrDoc, func(f *finder) {
		for cursor, call := range f.calls() {
			why := whyErrorMatters(f.target(call).fn)
			if why == "" || !f.ignoresError(cursor, call) {
				continue
			}
			node := methodAndArguments(call)
			f.report(analysis.Diagnostic{
				Pos: node.Pos(), End: node.End(),
				Message: "the error of " + f.target(call).fn.Name() + " is not used: " + why,
			})
		}
	})
}

// whyErrorMatters returns what a program does not learn without the error of a function, or "" for
// a function that the check does not concern.
func whyErrorMatters(fn *types.Func) string {
	switch d := dibsFuncOf(fn); {
	case isDo(fn), d.is("", "Call"), d.is("Election", "Run"):
		return "without it nobody notices that the function did not run, or ran without the lock"
	case d.is("", "Fence", "FenceOf"), d.is("Lease", "ReserveFences"):
		return "without a fence the number is 0"
	case d.is("", "LeaseOf"), d.is("Client", "Attach"), givesLease(fn):
		return "without a lease the result is nil, and nothing holds the lock"
	case d.is("Lease", "Yield"):
		return "after it the lock is not held any more"
	case d.is("Lease", "Extend", "Downgrade", "TryUpgrade"):
		return "after it the lease is as before, or lost"
	case d.is("Client", "Holds"), isGuard(fn):
		return "only the error says that the lock is not held"
	}
	return ""
}

// isGuard reports whether a function is the guard of a transaction, by a store of dibs.
func isGuard(fn *types.Func) bool {
	if fn == nil || !ofDibs(fn.Pkg()) || fn.Signature().Recv() == nil {
		return false
	}
	switch fn.Name() {
	case "Guard", "GuardPgx", "ReleaseIn", "ReleaseInPgx":
		return returnsFailure(fn.Signature())
	}
	return false
}

// ignoresError reports whether a call is a statement, or whether its result is used without its
// error.
func (f *finder) ignoresError(cursor inspector.Cursor, call *ast.CallExpr) bool {
	var left []ast.Expr
	switch parent := cursor.Parent().Node().(type) {
	case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
		return !givesLease(f.target(call).fn) // that is for the check lostlease
	case *ast.AssignStmt:
		left = parent.Lhs
	case *ast.ValueSpec:
		for _, name := range parent.Names {
			left = append(left, name)
		}
	}
	return len(left) == 2 && !isBlank(left[0]) && isBlank(left[1]) && !f.comparedWithNil(cursor, left[0])
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// comparedWithNil reports whether the function around a cursor compares a variable with nil.
func (f *finder) comparedWithNil(cursor inspector.Cursor, e ast.Expr) bool {
	body, ok := enclosingFunction(cursor)
	v := f.variable(e)
	if !ok || v == nil {
		return false
	}
	found := false
	ast.Inspect(body.block, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
			found = found || f.variable(b.X) == v && f.isNil(b.Y) || f.variable(b.Y) == v && f.isNil(b.X)
		}
		return !found
	})
	return found
}
