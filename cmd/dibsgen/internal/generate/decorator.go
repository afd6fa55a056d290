package generate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/directive"
	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

// decorator contains the parts to generate for an interface.
type decorator struct {
	spec        *ast.TypeSpec
	file        *load.File
	name        string // the interface's name
	constructor string
	typeName    string
	typeParams  *types.TypeParamList
	methods     []*method
	receiver    string          // the name for the methods' receiver
	taken       map[string]bool // all names of parameters and results, and those in directives
	start       int             // of its code, in the file
	broken      bool            // reported: the generated code need not compile, apart from its directives
}

// typeParamNames returns the type parameters' names. In the decorator's methods they are in scope
// for the parameters and results, unlike in the interface's.
func (d *decorator) typeParamNames() map[string]bool {
	names := map[string]bool{}
	for param := range d.typeParams.TypeParams() {
		names[param.Obj().Name()] = true
	}
	return names
}

// method is an interface method, declared or embedded.
type method struct {
	name      string
	at        token.Pos // the name's place
	signature *types.Signature
	found     *found            // nil if the call is passed on
	params    []string          // their names; unnamed parameters get a name
	uses      map[string]bool   // the identifiers in the directive; true if a dot follows
	bound     binding           // the type parameters in the directive
	boundBy   map[string]string // the names in bound's types, with their type parameters
	broken    bool              // reported: its directive is not compiled
}

// kind returns the directive's kind, or an empty kind.
func (m *method) kind() directive.Kind {
	if !m.locked() {
		return ""
	}
	return m.found.Kind
}

// locked reports whether the method has a directive that can be compiled.
func (m *method) locked() bool { return m.found != nil && !m.broken }

// planner makes a package's decorators.
type planner struct {
	loader     *load.Loader
	pkg        *load.Package
	checked    *load.Checked
	directives *directives
	report     *problems
	taken      map[string]bool // package-level names, including generated names
}

// plan returns a package's decorators, in the order of the source.
func (p *planner) plan() (all []*decorator) {
	for _, file := range p.pkg.Files {
		if file.Use != load.Built {
			continue
		}
		for _, decl := range file.Syntax.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range group.Specs {
				all = append(all, p.decorators(file, spec)...)
			}
		}
	}
	return all
}

// decorators returns a type's decorator, or none without a method with a directive. A decorator
// with problems is marked as broken: the compiler still finds the others.
func (p *planner) decorators(file *load.File, declared ast.Spec) []*decorator {
	spec, ok := declared.(*ast.TypeSpec)
	if !ok {
		return nil
	}
	it, params := p.interfaceOf(spec)
	if it == nil {
		return nil
	}
	d := &decorator{spec: spec, file: file, name: spec.Name.Name, typeParams: params, taken: map[string]bool{}}
	if !p.addMethods(d, it) {
		return nil
	}
	before := len(p.report.list)
	p.checkInterface(d, it)
	bindings := p.bindings(p.checked.Info.Defs[spec.Name].Type())
	for _, m := range d.methods {
		p.checkMethod(d, m)
		p.nameParams(d, m)
		bindings.bindMethod(d, m)
	}
	p.nameTypes(d)
	d.broken = len(p.report.list) > before || slices.ContainsFunc(d.methods, func(m *method) bool { return m.broken })
	return []*decorator{d}
}

// interfaceOf returns a declaration's interface. An alias for a named type declares none.
func (p *planner) interfaceOf(spec *ast.TypeSpec) (*types.Interface, *types.TypeParamList) {
	if _, literal := ast.Unparen(spec.Type).(*ast.InterfaceType); spec.Assign.IsValid() && !literal {
		return nil, nil
	}
	object := p.checked.Info.Defs[spec.Name]
	if object == nil {
		return nil, nil
	}
	it, ok := object.Type().Underlying().(*types.Interface)
	if !ok {
		return nil, nil
	}
	if generic, ok := object.Type().(interface{ TypeParams() *types.TypeParamList }); ok {
		return it, generic.TypeParams()
	}
	return it, nil
}

// addMethods adds the methods to a decorator. It reports false if no method has a directive.
func (p *planner) addMethods(d *decorator, it *types.Interface) (locked bool) {
	for f := range it.Methods() {
		m := &method{name: f.Name(), at: f.Pos(), signature: f.Signature(), found: p.directives.ofMethod[f.Pos()]}
		d.methods = append(d.methods, m)
		if m.found != nil {
			locked = true
			m.found.used = true
			m.broken = m.found.Directive == nil
		}
	}
	slices.SortStableFunc(d.methods, p.bySource)
	return locked
}

// checkInterface reports problems in an interface as a whole, and removes the methods without
// possible code.
func (p *planner) checkInterface(d *decorator, it *types.Interface) {
	if !it.IsMethodSet() {
		p.report.add(d.spec.Name.Pos(), "interface %s is a constraint, and no value has its type; remove the type terms, or the directives", d.name)
	}
	for param := range d.typeParams.TypeParams() {
		if name := param.Obj().Name(); name == "error" || name == d.name {
			p.report.add(param.Obj().Pos(), "type parameter %s of %s hides the type of that name, which the generated code needs; rename it", name, d.name)
		}
	}
	p.reportTypeErrors(d)
	d.methods = slices.DeleteFunc(d.methods, hasInvalidType)
	for f := range it.Methods() {
		if !p.checkForeign(d, f) {
			d.methods = slices.DeleteFunc(d.methods, func(m *method) bool { return m.at == f.Pos() })
		}
	}
}

// bySource orders own methods as in the source. Other packages' methods follow, by name.
func (p *planner) bySource(a, b *method) int {
	own := func(m *method) bool { return p.ownFile(m.at) != nil }
	switch {
	case own(a) && own(b):
		return int(a.at - b.at)
	case own(a):
		return -1
	case own(b):
		return 1
	}
	return strings.Compare(a.name, b.name)
}

// ownFile returns the package's file at a place, or nil.
func (p *planner) ownFile(at token.Pos) *load.File {
	for _, file := range p.pkg.Files {
		if file.Syntax.FileStart <= at && at <= file.Syntax.FileEnd {
			return file
		}
	}
	return nil
}

// reportTypeErrors reports errors within the declaration, which make its types unknown. Without
// them, an error elsewhere is the reason for an unknown type.
func (p *planner) reportTypeErrors(d *decorator) {
	failed := false
	for _, err := range p.checked.Errors {
		if d.spec.Pos() <= err.Pos && err.Pos < d.spec.End() && !strings.HasPrefix(err.Msg, "\t") {
			p.report.add(err.Pos, "%s", err.Msg)
			failed = true
		}
	}
	if failed {
		return
	}
	for _, m := range d.methods {
		if !hasInvalidType(m) {
			continue
		}
		reason := "the package has errors"
		if len(p.checked.Errors) > 0 {
			reason = p.checked.Errors[0].Error()
		}
		p.report.add(p.placeOf(d, m.at), "the types of method %s are unknown: %s", m.name, p.relativeReason(reason))
	}
}

func hasInvalidType(m *method) bool {
	return strings.Contains(types.TypeString(m.signature, nil), invalidType)
}

// invalidType is the text for an unknown type. No valid type contains a blank between two words.
const invalidType = "invalid type"

// relativeReason removes the package's directory from an error.
func (p *planner) relativeReason(reason string) string {
	return strings.TrimPrefix(reason, p.pkg.Dir+"/")
}

// placeOf returns a place in the package: the interface's place if a method is declared elsewhere.
func (p *planner) placeOf(d *decorator, at token.Pos) token.Pos {
	if p.ownFile(at) != nil {
		return at
	}
	return d.spec.Name.Pos()
}

// checkForeign checks a method declared by another package's interface. It reports false if the
// decorator cannot contain it.
func (p *planner) checkForeign(d *decorator, f *types.Func) bool {
	if p.ownFile(f.Pos()) != nil {
		return true
	}
	at := d.spec.Name.Pos()
	if f.Pkg() != nil && f.Pkg() != p.checked.Types && !f.Exported() {
		p.report.add(at, "method %s is unexported in package %s, so that only that package can implement %s", f.Name(), f.Pkg().Path(), d.name)
		return false
	}
	if p.hasDirective(f) {
		p.report.add(at, "method %s of package %s has a directive, which would have no effect here; declare the method in %s with a directive of its own", f.Name(), f.Pkg().Path(), d.name)
	}
	return true
}

// hasDirective reports whether another package's method has a directive there. Its file is parsed
// again: imported packages are parsed without comments.
func (p *planner) hasDirective(f *types.Func) (has bool) {
	at := p.loader.Set.Position(f.Pos())
	if !at.IsValid() { // the type error's Error
		return false
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, at.Filename, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Doc == nil || len(field.Names) != 1 || set.Position(field.Names[0].Pos()).Offset != at.Offset {
			return true
		}
		for _, comment := range field.Doc.List {
			parsed, err := directive.Parse(comment.Text)
			has = has || parsed != nil || err != nil
		}
		return true
	})
	return has
}

// checkMethod checks the parameters and results of a method with a directive, even if the directive
// is wrong.
func (p *planner) checkMethod(d *decorator, m *method) {
	if m.found == nil {
		return
	}
	before := len(p.report.list)
	at := p.placeOf(d, m.at)
	params, results := m.signature.Params(), m.signature.Results()
	if params.Len() == 0 || !isContext(params.At(0).Type()) {
		p.report.add(at, "method %s has a directive, so its first parameter must be a context.Context: it ends when the lock is lost", m.name)
	}
	if n := results.Len(); n == 0 || !types.Identical(results.At(n-1).Type(), types.Universe.Lookup("error").Type()) {
		p.report.add(at, "method %s has a directive, so its last result must be an error: it reports a lock that is busy or lost", m.name)
	}
	for param := range params.Variables() {
		if param.Name() == "error" {
			p.report.add(p.placeOf(d, param.Pos()), "parameter error of method %s hides the type error, which the generated code needs; rename it", m.name)
		}
	}
	m.broken = m.broken || len(p.report.list) > before
}

func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context" && named.Obj().Name() == "Context"
}

// nameParams names a method's parameters, and collects the names in its directive.
func (p *planner) nameParams(d *decorator, m *method) {
	m.uses = map[string]bool{}
	if m.locked() {
		for _, expr := range m.found.expressions() {
			freeNames(expr.Text, func(name string, beforeDot bool) {
				m.uses[name] = m.uses[name] || beforeDot
				d.taken[name] = true
			})
		}
	}
	for result := range m.signature.Results().Variables() {
		d.taken[result.Name()] = true
	}
	own, typeParams := map[string]bool{}, d.typeParamNames()
	for param := range m.signature.Params().Variables() {
		own[param.Name()] = true
	}
	i := 0
	for param := range m.signature.Params().Variables() {
		name := param.Name()
		_, used := m.uses[name]
		switch {
		case name == "" || name == "_":
			name = "ctx"
			if i > 0 || !isContext(param.Type()) {
				name = "arg" + strconv.Itoa(i+1)
			}
			name = fresh(name, own, m.names(), p.taken, typeParams)
		case typeParams[name] && used:
			p.report.add(p.placeOf(d, param.Pos()), "parameter %s of method %s has the name of a type parameter of %s, and the directive uses it; rename one of them", name, m.name, d.name)
			m.broken = true
		case typeParams[name]:
			name = fresh(name, own, m.names(), p.taken, typeParams)
		}
		own[name] = true
		m.params = append(m.params, name)
		d.taken[name] = true
		i++
	}
}

// expressions returns all Go expressions in a directive.
func (f *found) expressions() []directive.Expression {
	if f.Kind == directive.Permits {
		return append(slices.Clip(f.Names), f.Count)
	}
	return f.Names
}

// freeNames calls add with an expression's identifiers, except those after a dot. An identifier
// before a dot can be a package.
func freeNames(text string, add func(name string, beforeDot bool)) {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return // not reached: package directive parsed it
	}
	selectors := map[*ast.Ident]bool{} // whether it is before the dot
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			selectors[n.Sel] = false
			if base, ok := n.X.(*ast.Ident); ok {
				selectors[base] = true
			}
		case *ast.Ident:
			if beforeDot, ok := selectors[n]; !ok || beforeDot {
				add(n.Name, beforeDot)
			}
		}
		return true
	})
}

// nameTypes chooses the names for the constructor and the type.
func (p *planner) nameTypes(d *decorator) {
	upper := upperFirst(d.name)
	d.constructor = "Lock" + upper
	if !ast.IsExported(d.name) {
		d.constructor = "lock" + upper
	}
	if other := p.checked.Types.Scope().Lookup(d.constructor); other != nil {
		p.report.add(other.Pos(), "%s is the name of a function that dibsgen generates for interface %s; rename one of them", d.constructor, d.name)
	}
	p.taken[d.constructor] = true
	d.typeName = fresh("locked"+upper, p.taken, d.typeParamNames())
	p.taken[d.typeName] = true
}

// fresh returns a name missing in all sets, with a number if need be.
func fresh(preferred string, taken ...map[string]bool) string {
	name := preferred
	for n := 2; slices.ContainsFunc(taken, func(set map[string]bool) bool { return set[name] }); n++ {
		name = preferred + strconv.Itoa(n)
	}
	return name
}

func upperFirst(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

func lowerFirst(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToLower(r)) + s[size:]
}
