package generate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
)

// A binding maps an interface's type parameters to their types in a decorator. A nil type is not
// known.
type binding map[string]types.Type

// binder finds the bindings for an interface's methods. A directive on a method of
//
//	type Store[K any] interface { … }
//
// can use K. In a decorator for an interface that embeds Store[int], K is int.
type binder struct {
	*planner
	ofMethod  map[token.Pos]binding // by the place of the method's name
	ambiguous map[token.Pos]bool    // embedded twice, with different bindings
}

func (p *planner) bindings(declared types.Type) *binder {
	b := &binder{planner: p, ofMethod: map[token.Pos]binding{}, ambiguous: map[token.Pos]bool{}}
	b.visit(declared, nil)
	return b
}

// visit visits an interface type and its embedded interfaces. Type parameters in scope at an
// interface literal have outer's types.
func (b *binder) visit(t types.Type, outer binding) {
	switch t := t.(type) {
	case *types.Alias:
		b.visit(t.Rhs(), bind(t.Origin().TypeParams(), t.TypeArgs()))
	case *types.Named:
		b.visitNamed(t)
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			b.set(m.Pos(), outer)
		}
		for e := range t.EmbeddedTypes() {
			b.visit(e, outer)
		}
	}
}

// visitNamed visits a declared type. The methods in "type Rows Store[int]" are in Store's
// declaration, whose type parameters they use.
func (b *binder) visitNamed(t *types.Named) {
	args := bind(t.Origin().TypeParams(), t.TypeArgs())
	defined, ok := b.definedAs(t)
	if !ok {
		b.visit(t.Underlying(), args)
		return
	}
	if t.TypeArgs() == nil {
		b.visit(defined, nil)
		return
	}
	// Here the types come from t's declaration. Nothing substitutes its type parameters in them, so
	// only the type parameters themselves are known.
	known := &binder{planner: b.planner, ofMethod: map[token.Pos]binding{}, ambiguous: b.ambiguous}
	known.visit(defined, nil)
	for at, of := range known.ofMethod {
		inner := binding{}
		for name, bound := range of {
			inner[name] = nil
			if param, ok := types.Unalias(bound).(*types.TypeParam); ok {
				inner[name] = args[param.Obj().Name()]
			}
		}
		b.set(at, inner)
	}
}

// set records a method's binding. A method embedded twice has one directive. So it is ambiguous if
// the two bindings differ.
func (b *binder) set(at token.Pos, of binding) {
	if old, seen := b.ofMethod[at]; seen && !same(old, of) {
		b.ambiguous[at] = true
	}
	b.ofMethod[at] = of
}

// definedAs returns the type named in a type's declaration, if it is no interface literal, and is
// in the package.
func (b *binder) definedAs(t *types.Named) (types.Type, bool) {
	for _, file := range b.pkg.Files {
		for _, decl := range file.Syntax.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, declared := range group.Specs {
				spec, ok := declared.(*ast.TypeSpec)
				if !ok || spec.Name.Pos() != t.Obj().Pos() {
					continue
				}
				_, literal := ast.Unparen(spec.Type).(*ast.InterfaceType)
				return b.checked.Info.TypeOf(spec.Type), !literal
			}
		}
	}
	return nil, false
}

// bind returns the type arguments by the parameters' names. In the declaration itself there are
// none: a parameter is its own type.
func bind(params *types.TypeParamList, args *types.TypeList) binding {
	b := binding{}
	for i := range params.Len() {
		if param := params.At(i); args.Len() > i {
			b[param.Obj().Name()] = args.At(i)
		} else {
			b[param.Obj().Name()] = param
		}
	}
	return b
}

func same(a, b binding) bool {
	for name, t := range a {
		if t == nil || b[name] == nil || !types.Identical(t, b[name]) {
			return false
		}
	}
	return len(a) == len(b)
}

// bindMethod gives a method the bindings for the type parameters in its directive.
func (b *binder) bindMethod(d *decorator, m *method) {
	m.bound = binding{}
	for name, t := range b.ofMethod[m.at] {
		switch _, used := m.uses[name]; {
		case !used || isParam(m, name):
		case t == nil:
			b.reportMethod(d, m, "the directive of method %s uses type parameter %s, whose type in %s is not known; declare the method in %[3]s", m.name, name, d.name)
		case b.ambiguous[m.at]:
			b.reportMethod(d, m, "the directive of method %s uses type parameter %s, and %s embeds the method with two different types for it; declare the method in %[3]s", m.name, name, d.name)
		default:
			m.bound[name] = t
		}
	}
}

// reportMethod reports a method's problem in a decorator.
func (p *planner) reportMethod(d *decorator, m *method, format string, args ...any) {
	p.report.add(d.spec.Name.Pos(), format, args...)
	m.broken = true
}

func isParam(m *method, name string) bool {
	for param := range m.signature.Params().Variables() {
		if param.Name() == name {
			return true
		}
	}
	return false
}

// A typeUse is a use of a type parameter in an expression's text.
type typeUse struct {
	offset, end int
	name        string
	operand     bool // the type is an operand, such as in a conversion
}

// typeUses returns the uses of bound type parameters in an expression, in the order of the text.
func typeUses(text string, bound binding) (uses []typeUse) {
	if len(bound) == 0 {
		return nil
	}
	set := token.NewFileSet()
	expr, err := parser.ParseExprFrom(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil // not reached: package directive parsed it
	}
	skip := map[ast.Node]bool{} // a field's name is no type
	ast.PreorderStack(expr, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			skip[n.Sel] = true
		case *ast.KeyValueExpr:
			skip[n.Key] = true
		case *ast.Ident:
			if bound[n.Name] == nil || skip[n] {
				return true
			}
			at := set.Position(n.Pos()).Offset
			uses = append(uses, typeUse{at, at + len(n.Name), n.Name, isOperand(n, stack)})
		}
		return true
	})
	slices.SortFunc(uses, func(a, b typeUse) int { return a.offset - b.offset })
	return uses
}

// isOperand reports whether a type such as *Order needs parentheses.
func isOperand(id *ast.Ident, stack []ast.Node) bool {
	if len(stack) == 0 {
		return true
	}
	switch parent := stack[len(stack)-1].(type) {
	case *ast.CallExpr:
		return parent.Fun == id
	case *ast.SelectorExpr:
		return true
	}
	return false
}
