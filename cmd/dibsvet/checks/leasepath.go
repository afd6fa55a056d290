package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/cfg"
)

// A leasePath searches a function's control flow for a path that does not handle a lease. The
// algorithm comes from the analyzer lostcancel. In addition, it skips branches on which the
// acquire's error is not nil, because there is no lease.
type leasePath struct {
	*finder
	lease, err *types.Var // err is nil if the error is not in a variable
	assignment ast.Node
	isResult   bool // the lease is a named result

	cases        map[*ast.CaseClause]*ast.SwitchStmt
	typeSwitches map[*ast.CaseClause]*ast.TypeSwitchStmt
}

// search returns the statement that ends a path without an Unlock, or nil: a return, or a new
// assignment to the lease.
func (p *leasePath) search(body *ast.BlockStmt) ast.Node {
	p.findSwitches(body)
	graph := cfg.New(body, p.mayReturn)
	for _, block := range graph.Blocks {
		for i, n := range block.Nodes {
			if n == p.assignment {
				return p.continueAfter(block, i)
			}
		}
	}
	return nil // unreachable code
}

// A place is a block in the control flow, with the facts known there.
type place struct {
	block    *cfg.Block
	otherErr bool // err is no longer the acquire's
	unsure   bool // a function received err, so the package does not show whether there is a lease
}

func (p *leasePath) continueAfter(start *cfg.Block, at int) ast.Node {
	seen := map[place]bool{}
	var visit func(from place, nodes []ast.Node) ast.Node
	visit = func(from place, nodes []ast.Node) ast.Node {
		r := p.scan(nodes)
		if r.handled || r.end != nil && from.unsure {
			return nil
		}
		if r.end != nil {
			return r.end
		}
		otherErr := from.otherErr || r.assignsErr
		for i, block := range from.block.Succs {
			to := place{block, otherErr, from.unsure}
			if !otherErr {
				switch p.leaseOn(from.block, i) {
				case absentLease:
					continue
				case presentLease:
					to.unsure = false
				case unknownLease:
					to.unsure = true
				case sameLease:
				}
			}
			if seen[to] {
				continue
			}
			seen[to] = true
			if end := visit(to, block.Nodes); end != nil {
				return end
			}
		}
		return nil
	}
	return visit(place{block: start}, start.Nodes[at+1:])
}

// A scanned is the result for a block's nodes.
type scanned struct {
	handled    bool
	end        ast.Node // of the path, without an Unlock
	assignsErr bool     // err is no longer the acquire's
}

// scan scans nodes until a node handles the lease, or ends the path.
func (p *leasePath) scan(nodes []ast.Node) (r scanned) {
	for _, n := range nodes {
		if p.handles(n) {
			return scanned{handled: true}
		}
		switch n := n.(type) {
		case *ast.ReturnStmt:
			if p.isResult && len(n.Results) == 0 {
				return scanned{handled: true}
			}
			return scanned{end: n}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				switch p.variable(left) {
				case nil:
				case p.lease:
					return scanned{end: n} // the lease is overwritten
				case p.err:
					r.assignsErr = r.assignsErr || len(n.Rhs) != 1 || !p.wrapsErr(n.Rhs[0])
				}
			}
		}
	}
	return r
}

// handles reports whether a node unlocks the lease, or passes it on.
func (p *leasePath) handles(n ast.Node) bool {
	found := false
	ast.PreorderStack(n, nil, func(n ast.Node, stack []ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && p.info.Uses[id] == p.lease && p.isHandled(id, stack) {
			found = true
		}
		return !found
	})
	return found
}

// isHandled reports whether a use of the lease ends the duty to unlock it.
func (p *leasePath) isHandled(id *ast.Ident, stack []ast.Node) bool {
	for _, outer := range stack {
		if _, ok := outer.(*ast.FuncLit); ok {
			return true // captured
		}
	}
	if len(stack) == 0 {
		return true
	}
	switch parent := stack[len(stack)-1].(type) {
	case *ast.SelectorExpr: // a method
		return parent.Sel.Name == "Unlock" || parent.Sel.Name == "Detach"
	case *ast.BinaryExpr: // a comparison
		return false
	case *ast.AssignStmt:
		for _, left := range parent.Lhs {
			if left == id {
				return false
			}
		}
	case *ast.CallExpr: // WithLease passes the lease on, and keeps it
		return !p.dibsCall(parent).is("", "WithLease")
	}
	return true
}

// mayReturn reports whether a call may return, as far as the package shows it.
func (p *leasePath) mayReturn(call *ast.CallExpr) bool {
	if id, ok := ast.Unparen(call.Fun).(*ast.Ident); ok {
		if builtin, ok := p.info.Uses[id].(*types.Builtin); ok {
			return builtin.Name() != "panic"
		}
	}
	fn := p.target(call).fn
	if fn == nil || fn.Pkg() == nil {
		return true
	}
	switch fn.Pkg().Path() + "." + fn.Name() {
	case "os.Exit", "runtime.Goexit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf", "log.Panicln":
		return false
	}
	return true
}

// A presence says whether there is a lease on a branch, as far as the branch shows it.
type presence int

const (
	sameLease    presence = iota // nothing
	absentLease                  // there is none
	presentLease                 // there is a lease
	unknownLease                 // there may be a lease: a function in the program decides
)

// leaseOn returns a branch's information about the lease.
func (p *leasePath) leaseOn(from *cfg.Block, branch int) presence {
	if clause, ok := from.Succs[branch].Stmt.(*ast.CaseClause); ok {
		if s := p.typeSwitches[clause]; s != nil && p.isErr(switchedValue(s)) {
			return p.leaseInCase(s, clause, from.Succs[branch].Kind)
		}
	}
	if len(from.Succs) != 2 || len(from.Nodes) == 0 {
		return sameLease
	}
	condition, ok := from.Nodes[len(from.Nodes)-1].(ast.Expr)
	if !ok {
		return sameLease
	}
	isTrue := branch == 0
	if clause, ok := from.Succs[0].Stmt.(*ast.CaseClause); ok && from.Succs[0].Kind == cfg.KindSwitchCaseBody {
		if s := p.cases[clause]; s != nil && s.Tag != nil {
			return p.comparison(s.Tag, condition, isTrue)
		}
	}
	return p.implies(condition, isTrue)
}

// leaseInCase returns the information from a case in a type switch on the error.
func (p *leasePath) leaseInCase(s *ast.TypeSwitchStmt, clause *ast.CaseClause, kind cfg.BlockKind) presence {
	switch {
	case kind != cfg.KindSwitchCaseBody: // the later cases
		return when(len(clause.List) == 1 && p.isNil(clause.List[0]), absentLease)
	case slices.ContainsFunc(clause.List, p.isNil):
		return presentLease
	case clause.List != nil:
		return absentLease
	}
	return sameLease
}

// switchedValue returns the x in switch x.(type).
func switchedValue(s *ast.TypeSwitchStmt) ast.Expr {
	var e ast.Expr
	switch assign := s.Assign.(type) {
	case *ast.AssignStmt:
		e = assign.Rhs[0]
	case *ast.ExprStmt:
		e = assign.X
	}
	if assertion, ok := ast.Unparen(e).(*ast.TypeAssertExpr); ok {
		return assertion.X
	}
	return e
}

// implies returns the information about the lease in a condition with a value.
func (p *leasePath) implies(condition ast.Expr, isTrue bool) presence {
	condition = p.value(condition)
	if part := p.partOf(condition); part != nil { // such as ok in e, ok := errors.AsType(err)
		if _, assertion := part.(*ast.TypeAssertExpr); assertion && p.usesErr(part) {
			return when(isTrue, absentLease)
		}
		condition = part
	}
	switch c := condition.(type) {
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return p.implies(c.X, !isTrue)
		}
	case *ast.BinaryExpr:
		switch c.Op {
		case token.LAND:
			return joinConditions(p.implies(c.X, isTrue), p.implies(c.Y, isTrue), isTrue)
		case token.LOR:
			return joinConditions(p.implies(c.X, isTrue), p.implies(c.Y, isTrue), !isTrue)
		case token.EQL:
			return p.comparison(c.X, c.Y, isTrue)
		case token.NEQ:
			return p.comparison(c.X, c.Y, !isTrue)
		}
	case *ast.CallExpr:
		return p.impliesByCall(c, isTrue)
	}
	return sameLease
}

// impliesByCall returns the information in a call's result: from package errors, or from a
// program's function for errors.
func (p *leasePath) impliesByCall(call *ast.CallExpr, isTrue bool) presence {
	if !slices.ContainsFunc(call.Args, p.usesErr) {
		return sameLease
	}
	if isFunc(p.target(call).fn, "errors", "Is", "As", "AsType") { // errors.Is(err, …)
		return when(isTrue && p.isErr(call.Args[0]), absentLease)
	}
	return unknownLease
}

func when(is bool, then presence) presence {
	if is {
		return then
	}
	return sameLease
}

// joinConditions returns the information in two conditions: if both have their values, or if at
// least one does.
func joinConditions(a, b presence, both bool) presence {
	switch {
	case a == b:
		return a
	case both && (a == absentLease || b == absentLease):
		return absentLease
	case both && (a == presentLease || b == presentLease):
		return presentLease
	case a == unknownLease || b == unknownLease:
		return unknownLease
	}
	return sameLease
}

// comparison returns the information in two operands' equality, or their difference.
func (p *leasePath) comparison(x, y ast.Expr, equal bool) presence {
	of := func(present bool) presence {
		if present {
			return presentLease
		}
		return absentLease
	}
	switch {
	case p.isErr(x) && p.isNil(y), p.isErr(y) && p.isNil(x):
		return of(equal)
	case p.isErr(x) || p.isErr(y): // err is equal to some error
		return when(equal, absentLease)
	case p.variable(x) == p.lease && p.isNil(y), p.variable(y) == p.lease && p.isNil(x):
		return of(!equal)
	case p.usesErr(x), p.usesErr(y): // code := status.Code(err)
		return unknownLease
	}
	return sameLease
}

// isErr reports whether an expression is the acquire's error, or wraps it.
func (p *leasePath) isErr(e ast.Expr) bool {
	if p.err == nil {
		return false
	}
	return p.variable(e) == p.err || p.wrapsErr(p.value(e))
}

// wrapsErr reports whether an expression calls a function that makes an error from the acquire's
// error, and from no other received error.
func (p *leasePath) wrapsErr(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || p.err == nil || p.info.TypeOf(call) == nil || !isError(p.info.TypeOf(call)) {
		return false
	}
	found := false
	for _, argument := range call.Args {
		t := p.info.TypeOf(argument)
		switch v := p.variable(argument); {
		case v == p.err:
			found = true
		case t == nil || !isError(t):
		case v == nil || v.Pkg() == nil || v.Parent() != v.Pkg().Scope(): // not a variable such as ErrNotFound
			if !p.wrapsErr(argument) {
				return false
			}
			found = true
		}
	}
	return found
}

// value is the finder's value, but only if the value is computed after the acquire: failed := err
// != nil before it is about another error.
func (p *leasePath) value(e ast.Expr) ast.Expr {
	e = ast.Unparen(e)
	if value := p.finder.value(e); value.Pos() > p.assignment.End() {
		return value
	}
	return e
}

// partOf is the finder's partOf, but only if the value is computed after the acquire.
func (p *leasePath) partOf(e ast.Expr) ast.Expr {
	if part := p.finder.partOf(e); part != nil && part.Pos() > p.assignment.End() {
		return part
	}
	return nil
}

// usesErr reports whether an expression is made from the acquire's error.
func (p *leasePath) usesErr(e ast.Expr) bool {
	if p.err == nil {
		return false
	}
	if p.variable(e) != p.err {
		e = p.value(e)
	}
	if part := p.partOf(e); part != nil && p.variable(e) != p.err {
		e = part
	}
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && p.info.Uses[id] == p.err {
			found = true
		}
		return !found
	})
	return found
}

// findSwitches finds each case's switch statement.
func (p *leasePath) findSwitches(body *ast.BlockStmt) {
	p.cases, p.typeSwitches = map[*ast.CaseClause]*ast.SwitchStmt{}, map[*ast.CaseClause]*ast.TypeSwitchStmt{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.SwitchStmt:
			for _, clause := range s.Body.List {
				p.cases[clause.(*ast.CaseClause)] = s
			}
		case *ast.TypeSwitchStmt:
			for _, clause := range s.Body.List {
				p.typeSwitches[clause.(*ast.CaseClause)] = s
			}
		}
		return true
	})
}
