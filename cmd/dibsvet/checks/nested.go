package checks

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

const nestedDoc = `find a lock inside another one that could be acquired together

Two programs that acquire the same names in different orders wait for each other. All
acquires several names in one step, so it cannot deadlock.

The check reports Lock, Do and dibs.Call of a mutex, a multi-lock or a writer. The call is
in a function given to Do or Call of another one, or it follows a Lock whose lease is still
held. All could replace both:

  - the names are known before the first lock: they are made of variables that keep their
    values, with conversions and simple functions such as fmt.Sprint. No variable comes from
    min, from a list or from a function with two such results, which may order the names;
  - both locks are of the same client;
  - the inner lock is always acquired: not in an if, a loop or a function literal, and not
    after a return, other than that for the error of the first lock.

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
	second, ok := f.acquired(inner)
	if !ok {
		return
	}
	outer, region, ok := f.lockAround(cursor, inner)
	if !ok {
		return
	}
	first, ok := f.acquired(outer)
	if !ok || !f.sameValue(first.client, second.client) || f.namesOverlap(first, second) || !f.isKnownBefore(second, region) {
		return
	}
	node := methodAndArguments(inner)
	f.report(analysis.Diagnostic{
		Pos: node.Pos(), End: node.End(),
		Message: "a lock inside another one deadlocks with a program that acquires them in another order: acquire both names with All",
	})
}

// acquired returns the primitive that a call acquires, if it waits for it, and All could do so.
func (f *finder) acquired(call *ast.CallExpr) (constructed, bool) {
	t := f.target(call)
	lock := t.receiver
	switch d := dibsFuncOf(t.fn); {
	case d.is("", "Call") && len(call.Args) > 1:
		lock = call.Args[1]
	case d.is("Mutex", "Lock", "Do"), d.is("MultiMutex", "Lock", "Do"), d.is("RWMutex", "Lock", "Do"):
	default:
		return constructed{}, false
	}
	made, ok := f.construction(lock)
	if !ok || !canJoin(made) {
		return constructed{}, false
	}
	for _, of := range []*ast.CallExpr{call, made.call} {
		if options, known := f.options(of); !known || hasOption(options, "Reentrant") {
			return constructed{}, false
		}
	}
	return made, true
}

// A region is a part of a function that runs under a lock, up to an inner lock.
type region struct {
	nodes      []ast.Node
	start, end token.Pos
}

// lockAround returns the call that acquires the lock around another call, if that is always
// executed under it.
func (f *finder) lockAround(cursor inspector.Cursor, inner *ast.CallExpr) (outer *ast.CallExpr, under region, ok bool) {
	for at := cursor; ; at = at.Parent() {
		parent := at.Parent()
		switch n := parent.Node().(type) {
		case *ast.BlockStmt:
			if outer, under, ok := f.heldLease(n.List, at.Node(), inner); ok {
				return outer, under, true
			}
		case *ast.FuncLit:
			call, ok := parent.Parent().Node().(*ast.CallExpr)
			if !ok || returnsBefore(n, inner) {
				return nil, region{}, false
			}
			l, ok := f.lockedFunc(call)
			return call, region{[]ast.Node{n.Body}, n.Pos(), inner.Pos()}, ok && l.literal == n
		case *ast.IfStmt:
			if at.Node() != n.Init && at.Node() != ast.Node(n.Cond) {
				return nil, region{}, false
			}
		case nil, *ast.FuncDecl, *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause, *ast.CommClause, *ast.GoStmt, *ast.DeferStmt:
			return nil, region{}, false
		case *ast.BinaryExpr:
			if (n.Op == token.LAND || n.Op == token.LOR) && at.Node() == ast.Node(n.Y) {
				return nil, region{}, false
			}
		}
	}
}

// heldLease returns the last Lock in a list of statements before one of them. Its lease is still
// held there, and nothing returns in between but the check of its error.
func (f *finder) heldLease(list []ast.Stmt, at ast.Node, inner *ast.CallExpr) (*ast.CallExpr, region, bool) {
	end := slices.IndexFunc(list, func(s ast.Stmt) bool { return ast.Node(s) == at })
	for i := end - 1; i >= 0; i-- {
		assign, ok := list[i].(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != 2 || len(assign.Rhs) != 1 {
			continue
		}
		call, ok := ast.Unparen(assign.Rhs[0]).(*ast.CallExpr)
		if !ok || !givesLease(f.target(call).fn) {
			continue
		}
		lease, err := f.variable(assign.Lhs[0]), f.variable(assign.Lhs[1])
		if lease == nil {
			return nil, region{}, false
		}
		under := region{start: assign.End(), end: inner.Pos()}
		for _, between := range list[i+1 : end] {
			if f.endsLease(between, lease) || returns(between) && !f.isErrorCheck(between, err) {
				return nil, region{}, false
			}
			under.nodes = append(under.nodes, between)
		}
		return call, under, true
	}
	return nil, region{}, false
}

// endsLease reports whether a statement uses a lease in another way than to ask it something. A
// deferred call comes later.
func (f *finder) endsLease(statement ast.Stmt, lease *types.Var) bool {
	if _, deferred := statement.(*ast.DeferStmt); deferred {
		return false
	}
	ends := false
	ast.PreorderStack(statement, nil, func(n ast.Node, stack []ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && f.info.Uses[id] == lease {
			selector, ok := stack[len(stack)-1].(*ast.SelectorExpr)
			ends = ends || !ok || !slices.Contains([]string{"Context", "Fence", "Err", "Name", "Token"}, selector.Sel.Name)
		}
		return !ends
	})
	return ends
}

// isErrorCheck reports whether a statement is if err != nil { return … }.
func (f *finder) isErrorCheck(statement ast.Stmt, err *types.Var) bool {
	check, ok := statement.(*ast.IfStmt)
	if !ok || check.Init != nil || check.Else != nil || err == nil {
		return false
	}
	condition, ok := check.Cond.(*ast.BinaryExpr)
	return ok && condition.Op == token.NEQ && f.variable(condition.X) == err && f.isNil(condition.Y)
}

// returns reports whether a statement has a return, or a jump to another place.
func returns(statement ast.Node) bool {
	found := false
	ast.Inspect(statement, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt, *ast.BranchStmt:
			found = true
		}
		return !found
	})
	return found
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

// isKnownBefore reports whether the names of a primitive are known before a region begins.
func (f *finder) isKnownBefore(c constructed, under region) bool {
	if c.call.End() <= under.start {
		return true
	}
	return !slices.ContainsFunc(f.namesOf(c), func(name ast.Expr) bool { return !f.isConstantIn(name, under) })
}

// isConstantIn reports whether an expression has the same value at the begin of a region and at its
// end, as far as the package shows it.
func (f *finder) isConstantIn(e ast.Expr, under region) bool {
	same := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			same = same && f.isPure(n)
		case *ast.FuncLit, *ast.UnaryExpr, *ast.StarExpr:
			same = false
		case *ast.SelectorExpr:
			if v := f.rootOf(n); v != nil {
				// The region may change what a field or an element contains in many ways.
				same = same && !f.mentions(under, v)
			}
		case *ast.IndexExpr, *ast.SliceExpr:
			same = false
		case *ast.Ident:
			if v, ok := f.info.Uses[n].(*types.Var); ok && !v.IsField() {
				same = same && (v.Pos() < under.start || v.Pos() >= under.end) && !f.changes(under, v) && !f.mayBeOrdered(v, 3)
			}
		}
		return same
	})
	return same
}

// mayBeOrdered reports whether a variable may have the smaller or the larger of two names, because
// all programs acquire these in one order. It has several values, or one from min, from a list, or
// from a function that returns two. Values of values count, in this many steps.
func (f *finder) mayBeOrdered(v *types.Var, steps int) bool {
	of := f.values[v.Origin()]
	if of == nil || steps == 0 {
		return false
	}
	if len(of.values) > 1 || len(of.values) == 1 && v.Kind() == types.ParamVar {
		return true
	}
	return slices.ContainsFunc(slices.Concat(of.values, of.parts), func(e ast.Expr) bool { return f.mayOrder(e, steps) })
}

func (f *finder) mayOrder(e ast.Expr, steps int) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			found = found || f.isMinOrMax(n) || f.returnsTwo(n)
		case *ast.IndexExpr:
			found = found || f.info.Types[n].IsValue()
		case *ast.Ident:
			v, ok := f.info.Uses[n].(*types.Var)
			found = found || ok && !v.IsField() && f.mayBeOrdered(v, steps-1)
		}
		return !found
	})
	return found
}

func (f *finder) isMinOrMax(call *ast.CallExpr) bool {
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok {
		return false
	}
	builtin, ok := f.info.Uses[id].(*types.Builtin)
	return ok && (builtin.Name() == "min" || builtin.Name() == "max")
}

// returnsTwo reports whether the first two results of a call have the same type.
func (f *finder) returnsTwo(call *ast.CallExpr) bool {
	results, ok := f.info.TypeOf(call).(*types.Tuple)
	return ok && results.Len() > 1 && types.Identical(results.At(0).Type(), results.At(1).Type())
}

// isPure reports whether a call is a conversion, or of a function whose result depends on its
// arguments only.
func (f *finder) isPure(call *ast.CallExpr) bool {
	if f.info.Types[call.Fun].IsType() {
		return true
	}
	fn := f.target(call).fn
	if fn == nil || fn.Pkg() == nil || fn.Signature().Recv() != nil {
		return false
	}
	switch fn.Pkg().Path() {
	case "fmt", "strconv", "strings":
		return true
	}
	return false
}

// rootOf returns the variable with which a selector begins, if it selects fields.
func (f *finder) rootOf(e ast.Expr) *types.Var {
	if selector, ok := ast.Unparen(e).(*ast.SelectorExpr); ok && f.info.Selections[selector] != nil {
		return f.rootOf(selector.X)
	}
	return f.variable(e)
}

// mentions reports whether a region uses a variable, except for a client that it has.
func (f *finder) mentions(under region, v *types.Var) bool {
	return f.anyUse(under, v, func(stack []ast.Node) bool {
		selector, ok := stack[len(stack)-1].(*ast.SelectorExpr)
		if !ok {
			return true
		}
		t := f.info.TypeOf(selector)
		return t == nil || namedIn(t, dibsPath) == ""
	})
}

// changes reports whether a region may assign to a variable.
func (f *finder) changes(under region, v *types.Var) bool {
	return f.anyUse(under, v, func(stack []ast.Node) bool {
		switch parent := stack[len(stack)-1].(type) {
		case *ast.AssignStmt:
			return slices.ContainsFunc(parent.Lhs, func(e ast.Expr) bool { return f.variable(e) == v })
		case *ast.UnaryExpr:
			return parent.Op == token.AND
		case *ast.IncDecStmt, *ast.RangeStmt:
			return true
		}
		return false
	})
}

// anyUse reports whether a use of a variable in a region satisfies is.
func (f *finder) anyUse(under region, v *types.Var, is func(stack []ast.Node) bool) bool {
	found := false
	for _, node := range under.nodes {
		ast.PreorderStack(node, nil, func(n ast.Node, stack []ast.Node) bool {
			if n.Pos() >= under.end {
				return false
			}
			if id, ok := n.(*ast.Ident); ok && f.info.ObjectOf(id) == v && len(stack) > 0 {
				found = found || is(stack)
			}
			return !found
		})
	}
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
