package checks

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
)

// assigned contains the expressions that the package assigns to a variable or a field.
type assigned struct {
	values []ast.Expr
	parts  []ast.Expr // calls, assertions and the like, of which it is one of several results
	other  bool       // it can have other values than those in values
}

// findAssignments returns the assignments to each variable and field in the package. Parameters are
// missing: their values come from elsewhere.
func findAssignments(s *source) map[*types.Var]*assigned {
	a := assignments{source: s, found: map[*types.Var]*assigned{}}
	types := []ast.Node{
		(*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.RangeStmt)(nil), (*ast.IncDecStmt)(nil),
		(*ast.UnaryExpr)(nil), (*ast.CompositeLit)(nil), (*ast.ReturnStmt)(nil),
	}
	for cursor := range s.root.Preorder(types...) {
		if returned, ok := cursor.Node().(*ast.ReturnStmt); ok {
			a.addResults(cursor, returned)
			continue
		}
		a.add(cursor.Node())
	}
	return a.found
}

type assignments struct {
	*source
	found map[*types.Var]*assigned
}

func (a *assignments) add(n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		a.addPairs(n.Lhs, n.Rhs, n.Tok != token.ASSIGN && n.Tok != token.DEFINE)
	case *ast.ValueSpec:
		names := make([]ast.Expr, len(n.Names))
		for i, name := range n.Names {
			names[i] = name
		}
		a.addPairs(names, n.Values, false)
	case *ast.RangeStmt:
		a.addOther(n.Key)
		a.addOther(n.Value)
	case *ast.IncDecStmt:
		a.addOther(n.X)
	case *ast.UnaryExpr:
		if n.Op == token.AND { // whoever holds the address can change the value
			a.addOther(n.X)
		}
	case *ast.CompositeLit:
		a.addFields(n)
	}
}

// addPairs adds an assignment's values. A variable declared without a value gets an unknown value,
// because the important values are assigned later.
func (a *assignments) addPairs(to, values []ast.Expr, operation bool) {
	for i, target := range to {
		if operation || len(values) != len(to) {
			a.addOther(target)
			if v := a.variable(target); v != nil && len(values) == 1 {
				of := a.of(v)
				of.parts = append(of.parts, values[0])
			}
			continue
		}
		if v := a.variable(target); v != a.variable(values[i]) { // return err assigns nothing new to err
			a.addValue(v, values[i])
		}
	}
}

// addResults adds a return's assignments to named results.
func (a *assignments) addResults(cursor inspector.Cursor, returned *ast.ReturnStmt) {
	fn, ok := enclosingFunction(cursor)
	if !ok || fn.typ.Results == nil || len(returned.Results) == 0 {
		return
	}
	var names []ast.Expr
	for _, field := range fn.typ.Results.List {
		for _, name := range field.Names {
			names = append(names, name)
		}
	}
	a.addPairs(names, returned.Results, false)
}

func (a *assignments) addFields(literal *ast.CompositeLit) {
	t := a.info.TypeOf(literal)
	if t == nil {
		return
	}
	if p, ok := t.Underlying().(*types.Pointer); ok { // an element in a slice of pointers
		t = p.Elem()
	}
	structure, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				a.addValue(a.variable(key), pair.Value)
			}
			continue
		}
		a.addValue(structure.Field(i), element)
	}
}

func (a *assignments) addValue(v *types.Var, value ast.Expr) {
	if v != nil {
		of := a.of(v)
		of.values = append(of.values, value)
	}
}

func (a *assignments) addOther(target ast.Expr) {
	if target == nil {
		return
	}
	if v := a.variable(target); v != nil {
		a.of(v).other = true
	}
}

func (a *assignments) of(v *types.Var) *assigned {
	v = v.Origin()
	if a.found[v] == nil {
		a.found[v] = &assigned{}
	}
	return a.found[v]
}

// assignedTo returns all values of a variable or a field, or nil if the package does not show them
// all.
func (s *source) assignedTo(v *types.Var) *assigned {
	of := s.values[v.Origin()]
	if of == nil || of.other || len(of.values) == 0 || s.othersAssign(v) {
		return nil
	}
	return of
}

// othersAssign reports whether another package can assign to a variable or a field.
func (s *source) othersAssign(v *types.Var) bool {
	pkg := v.Pkg()
	return v.Exported() && pkg != nil && pkg.Name() != "main" && (v.IsField() || v.Parent() == pkg.Scope())
}

// value returns the expression for e's value, if the package shows that it has only one value.
// Otherwise it returns e.
func (s *source) value(e ast.Expr) ast.Expr {
	for range 10 { // more steps would be a cycle
		e = ast.Unparen(e)
		v := s.variable(e)
		if v == nil {
			return e
		}
		of := s.assignedTo(v)
		if of == nil || len(of.values) != 1 {
			return e
		}
		e = of.values[0]
	}
	return e
}

// partOf returns the expression with a variable among its results, if nothing else is assigned to
// the variable, or nil.
func (s *source) partOf(e ast.Expr) ast.Expr {
	v := s.variable(e)
	if v == nil {
		return nil
	}
	of := s.values[v.Origin()]
	if of == nil || len(of.values) > 0 || len(of.parts) != 1 {
		return nil
	}
	return ast.Unparen(of.parts[0])
}
