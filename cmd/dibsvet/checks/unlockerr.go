package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

const unlockErrDoc = `find functions that do not notice a lost lease

Unlock returns ErrLost if the lease ended before it. Then a part of the work ran without
the lock. defer lease.Unlock() discards that error.

The check reports defer lease.Unlock() in a function that acquires the lease, has an error
result, and uses the lease for nothing else. So nothing in the function can notice the
loss. If the work uses lease.Context, Err, Fence or Extend, or receives the lease, there
is no finding: the work ends with the lease, or the resource rejects late writes.

The fix joins the error of Unlock with the result, as Do does.`

func newUnlockErr(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "unlockerr", allFiles, unlockErrDoc, func(f *finder) {
		for cursor := range f.root.Preorder((*ast.DeferStmt)(nil)) {
			f.checkDefer(cursor, cursor.Node().(*ast.DeferStmt))
		}
	})
}

func (f *finder) checkDefer(cursor inspector.Cursor, n *ast.DeferStmt) {
	body, ok := enclosingFunction(cursor)
	if !ok || errorResult(body.signature(f.info)) == nil {
		return
	}
	lease := f.deferredUnlock(n)
	if lease == nil || !f.acquiredIn(body, lease) || f.noticesLoss(body.block, lease) {
		return
	}
	f.report(analysis.Diagnostic{
		Pos: n.Pos(), End: n.End(),
		Message:        "nothing in this function notices the loss of the lease: join the error of " + lease.Name() + ".Unlock() with its result",
		SuggestedFixes: f.joinFix(body, n, lease),
	})
}

// deferredUnlock returns the lease unlocked by a defer statement that does not use the error, or
// nil.
func (f *finder) deferredUnlock(n *ast.DeferStmt) *types.Var {
	if lease := f.unlocked(n.Call); lease != nil {
		return lease
	}
	literal, ok := n.Call.Fun.(*ast.FuncLit)
	if !ok {
		return nil
	}
	for _, statement := range literal.Body.List {
		if e, ok := statement.(*ast.ExprStmt); ok {
			if call, ok := e.X.(*ast.CallExpr); ok && f.unlocked(call) != nil {
				return f.unlocked(call)
			}
		}
	}
	return nil
}

// unlocked returns the lease variable that a call unlocks, or nil.
func (f *finder) unlocked(call *ast.CallExpr) *types.Var {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !f.dibsCall(call).is("Lease", "Unlock") {
		return nil
	}
	if id, ok := ast.Unparen(selector.X).(*ast.Ident); ok {
		return f.variable(id)
	}
	return nil
}

// acquiredIn reports whether a function itself acquires a lease. Then its caller has no other
// access to the lease.
func (f *finder) acquiredIn(body function, lease *types.Var) bool {
	if !body.scope(f.info).Contains(lease.Pos()) {
		return false
	}
	found := false
	ast.Inspect(body.block, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Rhs) == 1 && f.variable(assign.Lhs[0]) == lease {
			if call, ok := assign.Rhs[0].(*ast.CallExpr); ok && givesLease(f.target(call).fn) {
				found = true
			}
		}
		return !found
	})
	return found
}

// noticesLoss reports whether a function uses a lease for more than to unlock it, or uses an
// Unlock's error.
func (f *finder) noticesLoss(body *ast.BlockStmt, lease *types.Var) bool {
	found := false
	ast.PreorderStack(body, nil, func(n ast.Node, stack []ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && f.info.Uses[id] == lease && !f.isPlainUse(id, stack) {
			found = true
		}
		return !found
	})
	return found
}

// isPlainUse reports whether a use of a lease cannot notice its loss: a comparison with nil, its
// name or token, and an Unlock or Detach without using the error.
func (f *finder) isPlainUse(id *ast.Ident, stack []ast.Node) bool {
	switch parent := stack[len(stack)-1].(type) {
	case *ast.BinaryExpr:
		return true
	case *ast.AssignStmt:
		return slices.Contains(parent.Lhs, ast.Expr(id))
	case *ast.SelectorExpr:
		switch parent.Sel.Name {
		case "Name", "Token":
			return true
		case "Unlock", "Detach":
			if len(stack) < 3 {
				return false
			}
			switch stack[len(stack)-3].(type) { // the call's parent
			case *ast.ExprStmt, *ast.DeferStmt:
				return true
			}
		}
	}
	return false
}

// errorResult returns a function's last result if it is an error, or nil.
func errorResult(signature *types.Signature) *types.Var {
	if signature == nil || signature.Results().Len() == 0 {
		return nil
	}
	last := signature.Results().At(signature.Results().Len() - 1)
	if !isError(last.Type()) {
		return nil
	}
	return last
}

// joinFix joins Unlock's error with the error result, which it names err if it has no name. It
// returns no fix if this name means something else in the function.
func (f *finder) joinFix(body function, n *ast.DeferStmt, lease *types.Var) []analysis.SuggestedFix {
	if f.unlocked(n.Call) == nil {
		return nil
	}
	name, edits := "err", []analysis.TextEdit(nil)
	switch result := errorResult(body.signature(f.info)); {
	case result.Name() == "_":
		return nil
	case result.Name() != "":
		name = result.Name()
		scope := f.pass.Pkg.Scope().Innermost(n.Pos())
		if _, found := scope.LookupParent(name, n.Pos()); found != result {
			return nil
		}
	case !f.canNameErr(body, n):
		return nil
	default:
		edits = nameResults(body.typ.Results)
	}
	join := "defer func() { " + name + " = errors.Join(" + name + ", " + lease.Name() + ".Unlock()) }()"
	return f.fix(n, "join the error of Unlock", "errors", append(edits, edit(n, join))...)
}

// canNameErr reports whether a function's results can have the name err: in its outermost block,
// err is declared only together with another variable, or not at all. Then := assigns to the
// result. At n, err is the result.
func (f *finder) canNameErr(body function, n ast.Node) bool {
	scope := body.scope(f.info)
	declared := scope.Lookup("err")
	if inner := f.pass.Pkg.Scope().Innermost(n.Pos()); inner != nil {
		if found, at := inner.LookupParent("err", n.Pos()); at != nil && found != scope && scope.Contains(at.Pos()) {
			return false
		}
	}
	if declared == nil {
		return true
	}
	if !isError(declared.Type()) {
		return false
	}
	for _, statement := range body.block.List {
		assign, ok := statement.(*ast.AssignStmt)
		if !ok || assign.Tok != token.DEFINE {
			continue
		}
		declaresErr, declaresOther := false, false
		for _, left := range assign.Lhs {
			id, ok := left.(*ast.Ident)
			switch {
			case !ok || f.info.Defs[id] == nil:
			case f.info.Defs[id] == declared:
				declaresErr = true
			case id.Name != "_":
				declaresOther = true
			}
		}
		if declaresErr {
			return declaresOther
		}
	}
	return false
}

// nameResults names unnamed results: err for the last, and _ for the others.
func nameResults(results *ast.FieldList) []analysis.TextEdit {
	var edits []analysis.TextEdit
	for i, field := range results.List {
		name := "_ "
		if i == len(results.List)-1 {
			name = "err "
		}
		if i == 0 && !results.Opening.IsValid() {
			name = "(" + name
		}
		edits = append(edits, analysis.TextEdit{Pos: field.Pos(), End: field.Pos(), NewText: []byte(name)})
	}
	if !results.Opening.IsValid() {
		edits = append(edits, analysis.TextEdit{Pos: results.End(), End: results.End(), NewText: []byte(")")})
	}
	return edits
}
