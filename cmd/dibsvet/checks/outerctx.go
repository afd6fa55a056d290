package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
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
  - a go statement, and a function literal that is kept, do work that may outlive the function,
    whose context ends with it;
  - these clean up: a deferred call, a branch on an error or on the end of the inner context,
    the code after a wait for that end, and functions with a name such as rollback or close;
  - a function without an error or a context among its results, such as that of a logger or a
    metric, uses the values only; so does package log/slog;
  - a function with two contexts, of which one is from inside, joins them;
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
		if o.isAllowed(call, argument, signature) || o.cleansUp(call, stack) {
			o.allowed = true
			continue
		}
		o.found = append(o.found, outerContext{argument, call})
	}
}

// isOuter reports whether an expression is a context that was made outside of the literal.
func (o *outerContexts) isOuter(e ast.Expr) bool {
	e = o.aliased(e)
	if call, ok := e.(*ast.CallExpr); ok {
		selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		return ok && selector.Sel.Name == "Context" && len(call.Args) == 0 && o.isMethodValue(selector) &&
			o.base(selector.X) != nil
	}
	return o.base(e) != nil
}

// aliased returns the value of a variable of the literal that is only another name, as in
// mine := ctx.
func (o *outerContexts) aliased(e ast.Expr) ast.Expr {
	e = ast.Unparen(e)
	if v := o.variable(e); v != nil && o.contains(v.Pos()) {
		return o.value(e)
	}
	return e
}

// base returns the variable from outside that an expression is, or has as the first part of a
// selector; otherwise nil. A variable that the literal assigns to is not from outside.
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

// isDetached reports whether a variable has a value from inside, or one that does not end with
// its parent.
func (o *outerContexts) isDetached(v *types.Var) bool {
	of := o.values[v.Origin()]
	return of != nil && slices.ContainsFunc(slices.Concat(of.values, of.parts), func(value ast.Expr) bool {
		return o.contains(value.Pos()) || o.isWithoutCancel(value)
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

// isWithoutCancel reports whether a context is that of context.WithoutCancel, or made of it.
func (o *outerContexts) isWithoutCancel(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	if isFunc(o.target(call).fn, "context", "WithoutCancel") {
		return true
	}
	parent := call.Args[0]
	v := o.variable(parent)
	return v == nil && o.isWithoutCancel(parent) || v != nil && isContext(v.Type()) && !o.contains(v.Pos()) && v.Pos() < call.Pos() && o.isDetached(v)
}

// isFunc reports whether a function is one of a package.
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
		return dibsFuncOf(fn).is("", "Fence", "FenceOf") && o.ofOuterLock(argument)
	case fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "log/slog", !mayEnd(signature):
		return true
	}
	return slices.ContainsFunc(call.Args, func(other ast.Expr) bool {
		t := o.info.TypeOf(other)
		return other != argument && t != nil && isContext(t) && !o.isOuter(other)
	})
}

// mayEnd reports whether a function can do something else when its context ends: it returns an
// error, or another context. Otherwise it uses the values, as loggers and metrics do.
func mayEnd(signature *types.Signature) bool {
	for result := range signature.Results().Variables() {
		if isError(result.Type()) || isContext(result.Type()) {
			return true
		}
	}
	return false
}

// cleanUp matches the names of functions that undo something.
var cleanUp = regexp.MustCompile(`(?i)^(close|clean|undo|revert|release|unlock|abort|restore|unregister|deregister|discard)|roll_?back|clean_?up|tear_?down|shut_?down|compensate`)

// cleansUp reports whether a call is where the inner context has ended, or may have. That is in a
// branch on an error, or in a deferred call, or the name of the function says so.
func (o *outerContexts) cleansUp(call *ast.CallExpr, stack []ast.Node) bool {
	if name := o.nameOf(call.Fun); cleanUp.MatchString(name) {
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
		case *ast.FuncLit:
			if o.runsLater(n, stack[:i]) {
				return true
			}
		case *ast.IfStmt:
			if inside != ast.Node(n.Init) && inside != ast.Node(n.Cond) && o.isAboutEnd(n.Cond) {
				return true
			}
		case *ast.SwitchStmt:
			if inside == ast.Node(n.Body) && o.isSwitchAboutEnd(n) {
				return true
			}
		case *ast.TypeSwitchStmt:
			if inside == ast.Node(n.Body) && o.isAboutEnd(n.Assign) {
				return true
			}
		case *ast.CommClause:
			if n.Comm != nil && inside != ast.Node(n.Comm) && o.isAboutEnd(n.Comm) || o.endsBefore(n.Body, inside) {
				return true
			}
		case *ast.CaseClause:
			if o.endsBefore(n.Body, inside) {
				return true
			}
		case *ast.BlockStmt:
			if o.endsBefore(n.List, inside) {
				return true
			}
		}
	}
	return false
}

// nameOf returns the last name of an expression.
func (o *outerContexts) nameOf(e ast.Expr) string {
	switch e := withoutTypeArguments(e).(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func (o *outerContexts) isSwitchAboutEnd(s *ast.SwitchStmt) bool {
	if s.Tag != nil && o.isAboutEnd(s.Tag) {
		return true
	}
	return slices.ContainsFunc(s.Body.List, func(clause ast.Stmt) bool {
		return slices.ContainsFunc(clause.(*ast.CaseClause).List, func(e ast.Expr) bool { return o.isAboutEnd(e) })
	})
}

// runsLater reports whether a function literal is kept: it is returned, or in a variable that is
// not only called, or an argument of a function such as context.AfterFunc.
func (o *outerContexts) runsLater(literal *ast.FuncLit, outer []ast.Node) bool {
	if len(outer) == 0 {
		return false
	}
	switch parent := outer[len(outer)-1].(type) {
	case *ast.ReturnStmt, *ast.CompositeLit, *ast.KeyValueExpr:
		return true
	case *ast.CallExpr:
		name := o.nameOf(parent.Fun)
		return name == "AfterFunc" || strings.HasPrefix(name, "On") || strings.Contains(name, "Cleanup")
	case *ast.AssignStmt:
		i := slices.IndexFunc(parent.Rhs, func(e ast.Expr) bool { return ast.Unparen(e) == literal })
		if i < 0 || len(parent.Lhs) != len(parent.Rhs) {
			return false
		}
		id, ok := parent.Lhs[i].(*ast.Ident)
		return !ok || !o.isOnlyCalled(o.variable(id))
	}
	return false
}

// isOnlyCalled reports whether the literal uses a variable in calls only, and none of them is
// deferred or in a go statement.
func (o *outerContexts) isOnlyCalled(v *types.Var) bool {
	only := true
	ast.PreorderStack(o.literal.Body, nil, func(n ast.Node, stack []ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || o.info.Uses[id] != v || len(stack) < 2 {
			return true
		}
		call, ok := stack[len(stack)-1].(*ast.CallExpr)
		if !ok || call.Fun != id {
			only = false
			return true
		}
		switch stack[len(stack)-2].(type) {
		case *ast.GoStmt, *ast.DeferStmt:
			only = false
		}
		return true
	})
	return only
}

// endsBefore reports whether a statement before another one in a list waits for the end of the
// inner context.
func (o *outerContexts) endsBefore(list []ast.Stmt, at ast.Node) bool {
	for _, statement := range list {
		if ast.Node(statement) == at {
			return false
		}
		if loop, ok := unlabelled(statement).(*ast.ForStmt); ok && loop.Cond != nil && o.isAboutEnd(loop.Cond) || o.waitsForEnd(statement) {
			return at.Pos() > statement.End()
		}
	}
	return false
}

func unlabelled(s ast.Stmt) ast.Stmt {
	if labelled, ok := s.(*ast.LabeledStmt); ok {
		return labelled.Stmt
	}
	return s
}

// waitsForEnd reports whether a statement receives from the inner context, and goes on.
func (o *outerContexts) waitsForEnd(statement ast.Stmt) bool {
	waits := false
	ast.Inspect(statement, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CommClause:
			if len(n.Body) > 0 {
				if _, returns := n.Body[len(n.Body)-1].(*ast.ReturnStmt); returns {
					return false
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && o.isAboutEnd(n.X) {
				waits = true
			}
		}
		return !waits
	})
	return waits
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

// isAboutEnd reports whether a condition tests if the work has failed or the inner context has
// ended: it uses an error, or a context from inside. A variable stands for its value.
func (o *outerContexts) isAboutEnd(condition ast.Node) bool {
	found := false
	var look func(n ast.Node, steps int)
	look = func(n ast.Node, steps int) {
		ast.Inspect(n, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return !found
			}
			v := o.variable(e)
			switch {
			case v == nil || found:
			case v == o.inner, o.isEnd(v), isError(v.Type()), isContext(v.Type()) && !o.isOuter(e):
				found = true
			case steps > 0 && !v.IsField() && o.value(e) != ast.Unparen(e):
				look(o.value(e), steps-1)
			}
			return !found
		})
	}
	look(condition, 3)
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
// outside, once for all its uses. There is no fix that would leave a variable or an import
// unused.
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

// staysUsed reports whether what a context from outside is made of has other uses, if it needs
// one to compile.
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

// isUsedElsewhere reports whether a variable is used outside of the contexts that are reported. An
// assignment to it is no use.
func (o *outerContexts) isUsedElsewhere(v *types.Var) bool {
	for id, used := range o.info.Uses {
		if used == v && !o.isReported(id) && !o.isAssigned(id) {
			return true
		}
	}
	return false
}

func (o *outerContexts) isReported(id *ast.Ident) bool {
	return slices.ContainsFunc(o.found, func(found outerContext) bool {
		return found.context.Pos() <= id.Pos() && id.Pos() < found.context.End()
	})
}

// isAssigned reports whether an identifier is on the left of an assignment.
func (o *outerContexts) isAssigned(id *ast.Ident) bool {
	cursor, ok := o.root.FindByPos(id.Pos(), id.End())
	if !ok {
		return false
	}
	assign, ok := cursor.Parent().Node().(*ast.AssignStmt)
	return ok && slices.Contains(assign.Lhs, ast.Expr(id))
}

// nameFix names the parameter as the context from outside, if the literal uses that in the
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
