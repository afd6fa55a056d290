package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"unicode"
)

// cleanUp matches the names of functions that undo something. The first letter is upper case. A
// word such as Close must stand alone: CloseAccount is a program's work.
var cleanUp = regexp.MustCompile(`^(Close|Clean|Release|Unlock|Restore|Discard)(All)?$` +
	`|^(Undo|Revert|Abort|Unregister|Deregister)` + endOfWord +
	`|(Roll_?[Bb]ack|Clean_?[Uu]p|Tear_?[Dd]own|Shut_?[Dd]own|Compensate)` + endOfWord)

// keepsFunction matches the names of functions that keep a function, and call it later. The first
// letter is upper case.
var keepsFunction = regexp.MustCompile(`^AfterFunc$|Cleanup|^On` + endOfWord)

const endOfWord = `($|[^\p{Ll}])`

func upperFirst(name string) string {
	letters := []rune(name)
	if len(letters) > 0 {
		letters[0] = unicode.ToUpper(letters[0])
	}
	return string(letters)
}

// cleansUp reports whether the inner context has possibly ended at a call. Such places are an error
// branch, a deferred call, or a function with such a name.
func (o *outerContexts) cleansUp(call *ast.CallExpr, stack []ast.Node) bool {
	if cleanUp.MatchString(upperFirst(o.nameOf(call.Fun))) {
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
			if inside == ast.Node(n.Body) && o.showsEnd(n.Cond, true) || inside == ast.Node(n.Else) && o.showsEnd(n.Cond, false) {
				return true
			}
		case *ast.SwitchStmt:
			if inside == ast.Node(n.Body) && o.caseShowsEnd(n, stack[i+2].(*ast.CaseClause)) {
				return true
			}
		case *ast.TypeSwitchStmt:
			if inside == ast.Node(n.Body) && o.isAboutEnd(n.Assign) && !o.isCaseOfNil(stack[i+2].(*ast.CaseClause)) {
				return true
			}
		case *ast.CommClause:
			if inside != ast.Node(n.Comm) && o.receivesEnd(n.Comm) || o.endsBefore(n.Body, inside) {
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

// nameOf returns an expression's last name.
func (o *outerContexts) nameOf(e ast.Expr) string {
	switch e := withoutTypeArguments(e).(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// runsLater reports whether a function literal is kept: it is returned, or in a variable that is
// not only called, or an argument for a function such as context.AfterFunc.
func (o *outerContexts) runsLater(literal *ast.FuncLit, outer []ast.Node) bool {
	if len(outer) == 0 {
		return false
	}
	switch parent := outer[len(outer)-1].(type) {
	case *ast.ReturnStmt, *ast.CompositeLit, *ast.KeyValueExpr:
		return true
	case *ast.CallExpr:
		return keepsFunction.MatchString(upperFirst(o.nameOf(parent.Fun)))
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

// isOnlyCalled reports whether the literal uses a variable in calls only, never deferred or in a go
// statement.
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

// endsBefore reports whether an earlier statement in a list waits for the inner context's end.
func (o *outerContexts) endsBefore(list []ast.Stmt, at ast.Node) bool {
	for _, statement := range list {
		if ast.Node(statement) == at {
			return false
		}
		if loop, ok := unlabelled(statement).(*ast.ForStmt); ok && loop.Cond != nil && o.showsEnd(loop.Cond, false) || o.waitsForEnd(statement) {
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

// waitsForEnd reports whether a statement receives from the inner context, and continues.
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

// receivesEnd reports whether a select case receives from the inner context.
func (o *outerContexts) receivesEnd(comm ast.Stmt) bool {
	var received ast.Expr
	switch s := comm.(type) {
	case *ast.ExprStmt:
		received = s.X
	case *ast.AssignStmt:
		received = s.Rhs[0]
	default: // a send, or the default case
		return false
	}
	arrow, ok := ast.Unparen(received).(*ast.UnaryExpr)
	return ok && o.isAboutEnd(arrow.X)
}

// showsEnd reports whether a condition with a value shows failed work or the inner context's end,
// or that either is possible.
func (o *outerContexts) showsEnd(condition ast.Expr, isTrue bool) bool {
	condition = o.value(condition)
	switch c := condition.(type) {
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return o.showsEnd(c.X, !isTrue)
		}
	case *ast.BinaryExpr:
		switch {
		case c.Op == token.LAND || c.Op == token.LOR:
			return o.showsEnd(c.X, isTrue) || o.showsEnd(c.Y, isTrue)
		case o.isNil(c.X) || o.isNil(c.Y):
			return o.isAboutEnd(c) && isTrue == (c.Op == token.NEQ)
		case o.isErrorValue(c.X) && o.isErrorValue(c.Y):
			return o.isAboutEnd(c) && isTrue == (c.Op == token.EQL)
		}
	case *ast.CallExpr:
		if isFunc(o.target(c).fn, "errors", "Is", "As") && !isTrue {
			return false // there may be no error
		}
	case *ast.Ident:
		if part := o.partOf(c); part != nil && o.isTypeTest(part) { // ok in e, ok := errors.AsType[…](err)
			return isTrue && o.isAboutEnd(part)
		}
	}
	return o.isAboutEnd(condition)
}

// isTypeTest reports whether an expression tests a value's type, and with which result.
func (o *outerContexts) isTypeTest(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.TypeAssertExpr:
		return true
	case *ast.CallExpr:
		return isFunc(o.target(e).fn, "errors", "AsType")
	}
	return false
}

func (o *outerContexts) isErrorValue(e ast.Expr) bool {
	t := o.info.TypeOf(e)
	return t != nil && types.Implements(t, errorInterface())
}

// caseShowsEnd is showsEnd for a switch case: by its own conditions, or because earlier cases are
// false.
func (o *outerContexts) caseShowsEnd(s *ast.SwitchStmt, at *ast.CaseClause) bool {
	if s.Tag != nil {
		return o.isAboutEnd(s.Tag) && !o.isCaseOfNil(at)
	}
	for _, statement := range s.Body.List {
		clause := statement.(*ast.CaseClause)
		before := at.List == nil || clause.Pos() < at.Pos() // the default case comes after all others
		if slices.ContainsFunc(clause.List, func(e ast.Expr) bool {
			return clause == at && o.showsEnd(e, true) || clause != at && before && o.showsEnd(e, false)
		}) {
			return true
		}
	}
	return false
}

// isCaseOfNil reports whether a switch case is for nil only.
func (o *outerContexts) isCaseOfNil(clause *ast.CaseClause) bool {
	return len(clause.List) == 1 && o.isNil(clause.List[0])
}

// isAboutEnd reports whether a condition tests for failed work or for the inner context's end: it
// uses an error, or inspects a context from inside. A variable stands for its value.
func (o *outerContexts) isAboutEnd(condition ast.Node) bool { return o.mentionsEnd(condition, 3) }

func (o *outerContexts) mentionsEnd(n ast.Node, steps int) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok || found {
			return !found
		}
		if context := o.inspectedContext(e); context != nil {
			found = !o.isOuter(context)
			return false
		}
		t, v := o.info.TypeOf(e), o.variable(e)
		switch {
		case t != nil && isError(t):
			found = true
		case v != nil && steps > 0 && !v.IsField() && o.value(e) != ast.Unparen(e):
			found = o.mentionsEnd(o.value(e), steps-1)
		}
		return !found
	})
	return found
}

// inspectedContext returns the context whose end an expression inspects, or nil: the receiver of
// Err, Done or Cause, or the only argument in a call such as isLost(ctx).
func (o *outerContexts) inspectedContext(e ast.Expr) ast.Expr {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return nil
	}
	if selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && o.isContextValue(selector.X) {
		if selector.Sel.Name == "Err" || selector.Sel.Name == "Done" {
			return selector.X
		}
	}
	if len(call.Args) != 1 || !o.isContextValue(call.Args[0]) {
		return nil
	}
	if isFunc(o.target(call).fn, "context", "Cause") || types.Identical(o.info.TypeOf(call), types.Typ[types.Bool]) {
		return call.Args[0]
	}
	return nil
}

func (o *outerContexts) isContextValue(e ast.Expr) bool {
	t := o.info.TypeOf(e)
	return t != nil && isContext(t)
}
