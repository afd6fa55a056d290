package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const outerCtxDoc = `find contexts from outside in a function under a lock

The function given to Do receives a context that ends when the lease is lost, and that
carries the lease. A context from outside does neither: the work goes on without the lock,
and a nested lock on the same name waits for itself.

The check inspects function literals given to Do, RDo, Run, Call, Wrap or WrapCall. It
reports a context from outside that is passed to a call: a variable, a field, or the
result of a method Context, such as that of *http.Request. The fix uses the parameter.

These uses are correct, and not reported:

  - context.WithoutCancel, context.Background and context.TODO say that the work goes on
    after the lease;
  - methods of the context, context.Cause and context.AfterFunc ask when it ends;
  - a go statement starts work that may outlive the function, whose context ends with it;
  - a deferred call, and a branch that begins with the end of the inner context, clean up;
  - package log/slog and functions named FromContext use the values only;
  - dibs.Fence(outer) is the fence of an outer lock.`

func newOuterCtx(src *analysis.Analyzer) *analysis.Analyzer {
	return newCheck(src, "outerctx", notInTests, outerCtxDoc, func(f *finder) {
		locked := map[*ast.FuncLit]bool{}
		for _, call := range f.calls() {
			if l, ok := f.lockedFunc(call); ok && l.literal != nil {
				locked[l.literal] = true
			}
		}
		for cursor := range f.root.Preorder((*ast.FuncLit)(nil)) {
			if literal := cursor.Node().(*ast.FuncLit); locked[literal] {
				f.checkContexts(literal, locked)
			}
		}
	})
}

func (f *finder) checkContexts(literal *ast.FuncLit, locked map[*ast.FuncLit]bool) {
	inner := f.contextParameter(literal)
	if inner == nil {
		return
	}
	o := outerContexts{finder: f, literal: literal, inner: inner, locked: locked}
	ast.PreorderStack(literal.Body, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return !locked[n] // it has a context of its own, and is checked on its own
		case *ast.CallExpr:
			o.checkCall(n, stack)
		}
		return true
	})
	for i, found := range o.found {
		f.report(analysis.Diagnostic{
			Pos: found.context.Pos(), End: found.context.End(),
			Message:        o.message(found),
			SuggestedFixes: o.fix(found, i == 0),
		})
	}
}

// contextParameter returns the first parameter of a function if it is a context, or nil.
func (f *finder) contextParameter(literal *ast.FuncLit) *types.Var {
	signature, ok := f.info.TypeOf(literal).(*types.Signature)
	if !ok || signature.Params().Len() == 0 || !isContext(signature.Params().At(0).Type()) {
		return nil
	}
	return signature.Params().At(0)
}

// outerContexts looks for contexts from outside of one literal.
type outerContexts struct {
	*finder
	literal *ast.FuncLit
	inner   *types.Var
	locked  map[*ast.FuncLit]bool
	found   []outerContext
	allowed bool // a context from outside is used correctly somewhere
}

// An outerContext is a context from outside that is passed to a call.
type outerContext struct {
	context ast.Expr
	call    *ast.CallExpr
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
		if o.isAllowed(call, argument, stack) {
			o.allowed = true
			continue
		}
		o.found = append(o.found, outerContext{argument, call})
	}
}

// isOuter reports whether an expression is a context that was made outside of the literal.
func (o *outerContexts) isOuter(e ast.Expr) bool {
	e = ast.Unparen(e)
	if call, ok := e.(*ast.CallExpr); ok {
		selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		return ok && selector.Sel.Name == "Context" && len(call.Args) == 0 && o.isMethodValue(selector) &&
			o.base(selector.X) != nil
	}
	return o.base(e) != nil
}

// base returns the variable from outside that an expression is, or has as the first part of a
// selector; otherwise nil. A variable that the literal assigns to is not from outside.
func (o *outerContexts) base(e ast.Expr) *types.Var {
	e = ast.Unparen(e)
	if selector, ok := e.(*ast.SelectorExpr); ok && o.info.Selections[selector] != nil {
		return o.base(selector.X)
	}
	v := o.variable(e)
	if v == nil || o.contains(v.Pos()) {
		return nil
	}
	if of := o.values[v.Origin()]; of != nil && slices.ContainsFunc(of.values, func(value ast.Expr) bool {
		return o.contains(value.Pos()) || o.isWithoutCancel(value)
	}) {
		return nil
	}
	if o.assignsTo(v) {
		return nil
	}
	return v
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

func (o *outerContexts) isWithoutCancel(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	return ok && isFunc(o.target(call).fn, "context", "WithoutCancel")
}

// isFunc reports whether a function is one of a package.
func isFunc(fn *types.Func, path string, names ...string) bool {
	return fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == path && slices.Contains(names, fn.Name())
}

// isAllowed reports whether a use of a context from outside is correct.
func (o *outerContexts) isAllowed(call *ast.CallExpr, argument ast.Expr, stack []ast.Node) bool {
	fn := o.target(call).fn
	switch {
	case isFunc(fn, "context", "WithoutCancel", "Cause", "AfterFunc"):
		return true
	case fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "log/slog":
		return true
	case fn != nil && strings.Contains(fn.Name(), "FromContext"):
		return true
	case dibsFuncOf(fn).is("", "Fence", "FenceOf") && o.ofOuterLock(argument):
		return true
	}
	for i, n := range stack {
		inside := ast.Node(call)
		if i+1 < len(stack) {
			inside = stack[i+1]
		}
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt:
			return true
		case *ast.IfStmt:
			if inside == ast.Node(n.Body) && o.isAboutEnd(n.Cond) {
				return true
			}
		case *ast.CommClause:
			if n.Comm != nil && inside != ast.Node(n.Comm) && o.isAboutEnd(n.Comm) {
				return true
			}
		}
	}
	return false
}

// ofOuterLock reports whether a context is the parameter of another function under a lock.
func (o *outerContexts) ofOuterLock(e ast.Expr) bool {
	v := o.variable(e)
	for literal := range o.locked {
		if v != nil && v == o.contextParameter(literal) {
			return true
		}
	}
	return false
}

// isAboutEnd reports whether a condition tests if the inner context, or the lease, has ended:
// it uses that context, or an error that says so.
func (o *outerContexts) isAboutEnd(condition ast.Node) bool {
	found := false
	ast.Inspect(condition, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			v := o.variable(e)
			found = found || v != nil && (v == o.inner || v.Pkg() != nil && v.Pkg().Path() == "context") || o.isEnd(v)
		}
		return !found
	})
	return found
}

func (o *outerContexts) isEnd(v *types.Var) bool {
	return v != nil && fromDibs(v) && v.Parent() == v.Pkg().Scope() && (v.Name() == "ErrLost" || v.Name() == "ErrResigned")
}

func (o *outerContexts) message(found outerContext) string {
	name := o.text(found.context)
	problem := name + " is from outside: it does not end when the lease is lost"
	if fn := o.target(found.call).fn; givesLease(fn) || isDo(fn) || dibsFuncOf(fn).is("RWMutex", "RDo") || dibsFuncOf(fn).is("", "Call") {
		problem = name + " is from outside: it does not carry the lease, so a lock on the same name waits for itself"
	}
	if o.hasName() {
		return problem + "; use " + o.inner.Name() + ", the context of this function"
	}
	return problem + "; give the context parameter of this function a name, and use it"
}

func (o *outerContexts) hasName() bool { return o.inner.Name() != "" && o.inner.Name() != "_" }

// fix uses the parameter. If that has no name, it receives the name of the context from
// outside, once for all its uses.
func (o *outerContexts) fix(found outerContext, first bool) []analysis.SuggestedFix {
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

func (o *outerContexts) nameFix(found outerContext, first bool) []analysis.SuggestedFix {
	name, ok := ast.Unparen(found.context).(*ast.Ident)
	parameters := o.literal.Type.Params.List
	if !ok || !first || o.allowed || len(parameters[0].Names) == 0 && len(parameters) > 1 {
		return nil
	}
	for _, other := range o.found {
		if o.variable(other.context) != o.variable(name) {
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
