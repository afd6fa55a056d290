package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

const outerCtxDoc = `find contexts from outside in a function under a lock

The function given to Do receives a context that ends when the lease is lost, and that
carries the lease. A context from outside does neither: the work continues without the
lock, and a nested lock on the same name waits for itself.

The check inspects function literals given to Do, Run, Call, Wrap or WrapCall. It
reports a context from outside that is passed to a call: a variable, a field, or the
result of a method Context, such as that of *http.Request. The fix uses the parameter.

These uses are correct, and not reported:

  - context.WithoutCancel, context.Background and context.TODO say that the work continues
    after the lease;
  - methods of the context, context.Cause and context.AfterFunc ask when it ends;
  - a go statement, and a function literal that is kept, do work that may outlive the function,
    whose context ends with it;
  - these clean up: a deferred call, a branch for an error or for the end of the inner
    context, the code after a wait for that end, and functions with a name such as rollback,
    undoPayment or close;
  - a function uses the values only if its results cannot report a failure, such as that of
    a logger or a metric, or if its name ends with FromContext; so does package log/slog.
    An error, a context, and a type with a method that returns one of them can, such as
    *sql.Row;
  - a function with two contexts, of which one is from inside, joins them;
  - dibs.Fence(outer) and dibs.LeaseOf(outer, name) are those of an outer lock;
  - dibs.WithLease joins a context and a lease.`

func newOuterCtx(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "outerctx", notInTests, outerCtxDoc, func(f *finder) {
		locked := map[*ast.FuncLit]bool{}
		for _, call := range f.calls() {
			if l, ok := f.lockedFunc(call); ok && l.literal != nil {
				locked[l.literal] = true
			}
		}
		var all []*outerContexts
		reported := map[*ast.Ident]bool{}
		for cursor := range f.root.Preorder((*ast.FuncLit)(nil)) {
			literal := cursor.Node().(*ast.FuncLit)
			if inner := f.contextParameter(literal); locked[literal] && inner != nil {
				o := &outerContexts{finder: f, literal: literal, inner: inner, locked: locked, reported: reported}
				o.find()
				all = append(all, o)
			}
		}
		for _, o := range all { // a fix needs the findings in the other functions
			o.reportFound()
		}
	})
}

// outerContexts looks for contexts from outside a literal.
type outerContexts struct {
	*finder
	literal *ast.FuncLit
	inner   *types.Var
	locked  map[*ast.FuncLit]bool
	found   []outerContext
	allowed bool // a context from outside is used correctly somewhere

	reported map[*ast.Ident]bool // the sources of all contexts found in the package
}

// An outerContext is a context from outside that is passed to a call.
type outerContext struct {
	context ast.Expr
	call    *ast.CallExpr
}

func (o *outerContexts) find() {
	ast.PreorderStack(o.literal.Body, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return !o.locked[n] // it has its own context, and is checked separately
		case *ast.CallExpr:
			o.checkCall(n, stack)
		}
		return true
	})
	for _, found := range o.found {
		ast.Inspect(found.context, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				o.reported[id] = true
			}
			return true
		})
	}
}

func (o *outerContexts) reportFound() {
	for i, found := range o.found {
		o.report(analysis.Diagnostic{
			Pos: found.context.Pos(), End: found.context.End(),
			Message:        o.message(found),
			SuggestedFixes: o.fix(found, i == 0),
		})
	}
}

func (o *outerContexts) checkCall(call *ast.CallExpr, stack []ast.Node) {
	called := o.info.TypeOf(call.Fun)
	if called == nil {
		return
	}
	signature, ok := called.Underlying().(*types.Signature)
	if !ok {
		return
	}
	for i, argument := range call.Args {
		if i >= signature.Params().Len() || !isContext(signature.Params().At(i).Type()) || !o.isOuter(argument) {
			continue
		}
		if o.isAllowed(call, argument, signature) || o.cleansUp(call, stack) {
			o.allowed = true
			continue
		}
		o.found = append(o.found, outerContext{argument, call})
	}
}

// isOuter reports whether an expression is a context made outside the literal.
func (o *outerContexts) isOuter(e ast.Expr) bool {
	e = o.aliased(e)
	if call, ok := e.(*ast.CallExpr); ok {
		selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		return ok && selector.Sel.Name == "Context" && len(call.Args) == 0 && o.isMethodValue(selector) &&
			o.base(selector.X) != nil
	}
	return o.base(e) != nil
}

// aliased returns the value of the literal's variable if it is only another name, as in mine :=
// ctx.
func (o *outerContexts) aliased(e ast.Expr) ast.Expr {
	e = ast.Unparen(e)
	if v := o.variable(e); v != nil && o.contains(v.Pos()) {
		return o.value(e)
	}
	return e
}

// base returns the variable from outside in an expression, which is the expression itself or a
// selector's first part; otherwise nil. A variable assigned in the literal is not from outside.
func (o *outerContexts) base(e ast.Expr) *types.Var {
	e = ast.Unparen(e)
	if selector, ok := e.(*ast.SelectorExpr); ok && o.info.Selections[selector] != nil {
		return o.base(selector.X)
	}
	v := o.variable(e)
	if v == nil || o.contains(v.Pos()) || o.isDetached(v) || o.assignsTo(v) {
		return nil
	}
	return v
}

// isDetached reports whether a variable contains a value from inside, or a value that does not end
// with its parent.
func (o *outerContexts) isDetached(v *types.Var) bool {
	return o.becomesDetached(v, map[*types.Var]bool{})
}

// becomesDetached is isDetached, without the values made from variables in seen, such as the result
// of ctx, cancel := context.WithTimeout(ctx, time.Second) for a parameter ctx.
func (o *outerContexts) becomesDetached(v *types.Var, seen map[*types.Var]bool) bool {
	of := o.values[v.Origin()]
	if of == nil || seen[v] {
		return false
	}
	seen[v] = true
	return slices.ContainsFunc(slices.Concat(of.values, of.parts), func(value ast.Expr) bool {
		return o.contains(value.Pos()) || o.isWithoutCancel(value, seen)
	})
}

func (o *outerContexts) contains(pos token.Pos) bool {
	return o.literal.Pos() <= pos && pos < o.literal.End()
}

// assignsTo reports whether the literal assigns to a variable.
func (o *outerContexts) assignsTo(v *types.Var) bool {
	found := false
	ast.Inspect(o.literal.Body, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok {
			for _, left := range assign.Lhs {
				found = found || o.variable(left) == v
			}
		}
		return !found
	})
	return found
}

// isWithoutCancel reports whether a context is from context.WithoutCancel, or derived from such a
// context.
func (o *outerContexts) isWithoutCancel(e ast.Expr, seen map[*types.Var]bool) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	if isFunc(o.target(call).fn, "context", "WithoutCancel") {
		return true
	}
	parent := call.Args[0]
	v := o.variable(parent)
	return v == nil && o.isWithoutCancel(parent, seen) || v != nil && isContext(v.Type()) && !o.contains(v.Pos()) && v.Pos() < call.Pos() && o.becomesDetached(v, seen)
}

// isFunc reports whether a package contains a function.
func isFunc(fn *types.Func, path string, names ...string) bool {
	return fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == path && slices.Contains(names, fn.Name())
}

// isAllowed reports whether a function may receive a context from outside.
func (o *outerContexts) isAllowed(call *ast.CallExpr, argument ast.Expr, signature *types.Signature) bool {
	fn := o.target(call).fn
	switch {
	case isFunc(fn, "context", "WithoutCancel", "Cause", "AfterFunc"), isFunc(fn, "time", "AfterFunc"):
		return true
	case dibsFuncOf(fn).name != "":
		return dibsFuncOf(fn).is("", "WithLease") || dibsFuncOf(fn).is("", "Fence", "FenceOf", "LeaseOf") && o.ofOuterLock(argument)
	case fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "log/slog":
		return true
	case readsValues.MatchString(o.nameOf(call.Fun)), !anyReportsFailure(signature.Results()):
		return true
	}
	return slices.ContainsFunc(call.Args, func(other ast.Expr) bool {
		t := o.info.TypeOf(other)
		return other != argument && t != nil && isContext(t) && !o.isOuter(other)
	})
}

// ofOuterLock reports whether a context is another locked function's parameter.
func (o *outerContexts) ofOuterLock(e ast.Expr) bool {
	v := o.variable(e)
	for literal := range o.locked {
		if v != nil && v == o.contextParameter(literal) {
			return true
		}
	}
	return false
}

func (o *outerContexts) message(found outerContext) string {
	name := o.text(found.context)
	problem := name + " is from outside: it does not end when the lease is lost"
	if fn := o.target(found.call).fn; givesLease(fn) || isDo(fn) || dibsFuncOf(fn).is("", "Call") {
		problem = name + " is from outside: it does not carry the lease, so a lock on the same name waits for itself"
	}
	if o.hasName() {
		return problem + "; use " + o.inner.Name() + ", the context of this function"
	}
	return problem + "; give the context parameter of this function a name, and use it"
}

func (o *outerContexts) hasName() bool { return o.inner.Name() != "" && o.inner.Name() != "_" }

// fix uses the parameter. An unnamed parameter receives the name of the context from outside, once
// for all uses. No fix may leave a variable or an import unused.
func (o *outerContexts) fix(found outerContext, first bool) []analysis.SuggestedFix {
	if !o.staysUsed(found.context) {
		return nil
	}
	if !o.hasName() {
		return o.nameFix(found, first)
	}
	scope := o.pass.Pkg.Scope().Innermost(found.context.Pos())
	if scope == nil {
		return nil
	}
	if _, visible := scope.LookupParent(o.inner.Name(), found.context.Pos()); visible != o.inner {
		return nil
	}
	return []analysis.SuggestedFix{{
		Message:   "use " + o.inner.Name(),
		TextEdits: []analysis.TextEdit{edit(found.context, o.inner.Name())},
	}}
}

// staysUsed reports whether an outside context's source is used elsewhere, if it needs a use to
// compile.
func (o *outerContexts) staysUsed(e ast.Expr) bool {
	stays := true
	ast.Inspect(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		switch used := o.info.Uses[id].(type) {
		case *types.PkgName:
			stays = false
		case *types.Var:
			if used.Kind() == types.LocalVar && !o.isUsedElsewhere(used) {
				stays = false
			}
		}
		return stays
	})
	return stays
}

// isUsedElsewhere reports whether a variable is used outside the contexts with findings in the
// package: all fixes together must compile. An assignment to it does not count.
func (o *outerContexts) isUsedElsewhere(v *types.Var) bool {
	for id, used := range o.info.Uses {
		if used == v && !o.reported[id] && !o.isAssigned(id) {
			return true
		}
	}
	return false
}

// isReported reports whether an identifier is in a finding in this literal.
func (o *outerContexts) isReported(id *ast.Ident) bool {
	return slices.ContainsFunc(o.found, func(found outerContext) bool {
		return found.context.Pos() <= id.Pos() && id.Pos() < found.context.End()
	})
}

// isAssigned reports whether an identifier is on the left in an assignment.
func (o *outerContexts) isAssigned(id *ast.Ident) bool {
	cursor, ok := o.root.FindByPos(id.Pos(), id.End())
	if !ok {
		return false
	}
	assign, ok := cursor.Parent().Node().(*ast.AssignStmt)
	return ok && slices.Contains(assign.Lhs, ast.Expr(id))
}

// nameFix gives the parameter the outside context's name, if the literal uses that context in the
// reported places only.
func (o *outerContexts) nameFix(found outerContext, first bool) []analysis.SuggestedFix {
	name, ok := ast.Unparen(found.context).(*ast.Ident)
	parameters := o.literal.Type.Params.List
	if !ok || !first || o.allowed || len(parameters[0].Names) == 0 && len(parameters) > 1 {
		return nil
	}
	v := o.variable(name)
	if v == nil || !isContext(v.Type()) {
		return nil
	}
	for id, used := range o.info.Uses {
		if used == v && o.contains(id.Pos()) && !o.isReported(id) {
			return nil
		}
	}
	for _, other := range o.found {
		if o.variable(other.context) != v {
			return nil
		}
	}
	at := parameters[0]
	insert := analysis.TextEdit{Pos: at.Pos(), End: at.Pos(), NewText: []byte(name.Name + " ")}
	if len(at.Names) > 0 {
		insert = edit(at.Names[0], name.Name)
	}
	return []analysis.SuggestedFix{{Message: "name the parameter " + name.Name, TextEdits: []analysis.TextEdit{insert}}}
}
