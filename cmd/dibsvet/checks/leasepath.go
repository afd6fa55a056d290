package checks

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/cfg"
)

// A leasePath searches the control flow of a function for a path on which a lease is not
// handled. The algorithm is that of the analyzer lostcancel. In addition, it leaves out
// branches on which the error of the acquire is not nil, because there is no lease.
type leasePath struct {
	*finder
	lease, err *types.Var // err is nil if the error is not in a variable
	assignment ast.Node
	isResult   bool // the lease is a named result
	cases      map[*ast.CaseClause]*ast.SwitchStmt
}

// search returns the statement that ends a path without an Unlock, or nil: a return, or a
// new assignment of the lease.
func (p *leasePath) search(body *ast.BlockStmt) ast.Node {
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

// A place is a block of the control flow, on a path on which err is still that of the acquire,
// or has another value by now.
type place struct {
	block    *cfg.Block
	otherErr bool
}

func (p *leasePath) continueAfter(start *cfg.Block, at int) ast.Node {
	seen := map[place]bool{}
	var visit func(from place, nodes []ast.Node) ast.Node
	visit = func(from place, nodes []ast.Node) ast.Node {
		r := p.scan(nodes)
		if r.handled || r.end != nil {
			return r.end
		}
		otherErr := from.otherErr || r.assignsErr
		for i, block := range from.block.Succs {
			to := place{block, otherErr}
			if seen[to] || !otherErr && p.hasNoLease(from.block, i) {
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

// A scanned is what happens in the nodes of a block.
type scanned struct {
	handled    bool
	end        ast.Node // of the path, without an Unlock
	assignsErr bool     // err is no longer that of the acquire
}

// scan goes through nodes until one handles the lease, or ends the path.
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
					r.assignsErr = true
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

// isHandled reports whether one use of the lease ends the duty to unlock it.
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
	case *ast.CallExpr: // Downgrade and TryUpgrade change the lease, and keep it
		return !p.dibsCall(parent).is("RWMutex", "Downgrade", "TryUpgrade")
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

// hasNoLease reports whether the lease does not exist on a branch.
func (p *leasePath) hasNoLease(from *cfg.Block, branch int) bool {
	if len(from.Succs) != 2 || len(from.Nodes) == 0 {
		return false
	}
	condition, ok := from.Nodes[len(from.Nodes)-1].(ast.Expr)
	if !ok {
		return false
	}
	isTrue := branch == 0
	if clause, ok := from.Succs[0].Stmt.(*ast.CaseClause); ok && from.Succs[0].Kind == cfg.KindSwitchCaseBody {
		if s := p.cases[clause]; s != nil && s.Tag != nil {
			return p.comparesToNoLease(s.Tag, condition, isTrue)
		}
	}
	return p.impliesNoLease(condition, isTrue)
}

// impliesNoLease reports whether there is no lease if a condition has this value.
func (p *leasePath) impliesNoLease(condition ast.Expr, isTrue bool) bool {
	switch c := p.value(condition).(type) {
	case *ast.UnaryExpr:
		return c.Op == token.NOT && p.impliesNoLease(c.X, !isTrue)
	case *ast.BinaryExpr:
		switch c.Op {
		case token.LAND:
			return isTrue && (p.impliesNoLease(c.X, true) || p.impliesNoLease(c.Y, true)) ||
				!isTrue && p.impliesNoLease(c.X, false) && p.impliesNoLease(c.Y, false)
		case token.LOR:
			return !isTrue && (p.impliesNoLease(c.X, false) || p.impliesNoLease(c.Y, false)) ||
				isTrue && p.impliesNoLease(c.X, true) && p.impliesNoLease(c.Y, true)
		case token.EQL:
			return p.comparesToNoLease(c.X, c.Y, isTrue)
		case token.NEQ:
			return p.comparesToNoLease(c.X, c.Y, !isTrue)
		}
	case *ast.CallExpr: // errors.Is(err, …)
		fn := p.target(c).fn
		return isTrue && fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "errors" &&
			len(c.Args) > 0 && p.isErr(c.Args[0])
	}
	return false
}

// comparesToNoLease reports whether there is no lease if two operands are equal, or not.
func (p *leasePath) comparesToNoLease(x, y ast.Expr, equal bool) bool {
	switch {
	case p.isErr(x) && p.isNil(y), p.isErr(y) && p.isNil(x):
		return !equal
	case p.isErr(x) || p.isErr(y): // err is equal to some error
		return equal
	case p.variable(x) == p.lease && p.isNil(y):
		return equal
	}
	return false
}

func (p *leasePath) isErr(e ast.Expr) bool { return p.err != nil && p.variable(e) == p.err }

// switchesOf returns the switch statement of each case.
func switchesOf(body *ast.BlockStmt) map[*ast.CaseClause]*ast.SwitchStmt {
	cases := map[*ast.CaseClause]*ast.SwitchStmt{}
	ast.Inspect(body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SwitchStmt); ok {
			for _, clause := range s.Body.List {
				cases[clause.(*ast.CaseClause)] = s
			}
		}
		return true
	})
	return cases
}
