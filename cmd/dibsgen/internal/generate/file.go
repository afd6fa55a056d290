package generate

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/format"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

// DibsPath is the package imported by generated code.
const DibsPath = "github.com/dibslock/dibs"

// output is a generated file.
type output struct {
	source     *load.File
	decorators []*decorator
	imports    *imports
	prefer     map[string]string // import names in the source, by path
	own        *types.Package
	set        *token.FileSet
	taken      map[string]bool // package-level names
}

// newOutput plans the file for a source file's decorators.
func (p *planner) newOutput(source *load.File, decorators []*decorator) *output {
	o := &output{
		source: source, decorators: decorators, imports: newImports(), prefer: map[string]string{},
		own: p.checked.Types, set: p.loader.Set, taken: p.taken,
	}
	for name := range p.taken {
		o.imports.taken[name] = true
	}
	for _, name := range p.importNames(source) {
		if path := name.Imported().Path(); o.prefer[path] == "" && name.Name() != "." && name.Name() != "_" {
			o.prefer[path] = name.Name()
		}
	}
	for _, d := range decorators {
		maps.Copy(o.imports.taken, d.typeParamNames())
		maps.Copy(d.taken, d.typeParamNames())
		for _, m := range d.methods {
			o.hideNames(m)
			p.keepImports(o, d, m)
			d.broken = d.broken || m.broken
		}
	}
	for _, d := range decorators {
		d.receiver = fresh("l", d.taken, p.taken, o.imports.keptNames())
	}
	for _, d := range decorators { // not before: all may have the same
		o.imports.taken[d.receiver] = true
	}
	for _, d := range decorators { // not before: the imports' names depend on all that
		for _, m := range d.methods {
			p.renameHiding(o, d, m)
			d.broken = d.broken || m.broken
		}
	}
	return o
}

func (o *output) typeString(t types.Type) string {
	return types.TypeString(t, o.imports.qualifier(o.own, o.prefer))
}

// renameHiding renames the parameters that hide a type used by the directive for a type parameter,
// or the type's package. It reports such a parameter if the directive uses it.
func (p *planner) renameHiding(o *output, d *decorator, m *method) {
	if !m.locked() {
		return
	}
	m.boundBy = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.bound)) {
		freeNames(o.typeString(m.bound[name]), func(used string, _ bool) { m.boundBy[used] = name })
	}
	for i, param := range m.params {
		bound, hides := m.boundBy[param]
		if !hides {
			continue
		}
		if _, used := m.uses[param]; used {
			p.reportMethod(d, m, "the directive of method %s uses type parameter %s and parameter %s, which hides type %s; rename parameter %[3]s", m.name, bound, param, o.typeString(m.bound[bound]))
			continue
		}
		m.params[i] = fresh(param, m.names(), d.taken, o.imports.taken, o.imports.keptNames())
		d.taken[m.params[i]] = true
		o.imports.hiding[m.params[i]] = true
	}
}

// hideNames records the names of parameters and results, which hide imports.
func (o *output) hideNames(m *method) {
	for _, name := range m.params {
		o.imports.hiding[name] = true
	}
	for result := range m.signature.Results().Variables() {
		o.imports.hiding[result.Name()] = true
	}
}

// importNames returns a file's imports.
func (p *planner) importNames(file *load.File) (all []*types.PkgName) {
	for _, spec := range file.Syntax.Imports {
		object := p.checked.Info.Implicits[spec]
		if spec.Name != nil {
			object = p.checked.Info.Defs[spec.Name]
		}
		if name, ok := object.(*types.PkgName); ok {
			all = append(all, name)
		}
	}
	return all
}

// keepImports imports the packages used in a method's directive, under the same names as the file
// with the directive.
func (p *planner) keepImports(o *output, d *decorator, m *method) {
	if !m.locked() {
		return
	}
	for id, beforeDot := range m.uses {
		if m.bound[id] != nil || p.declares(d, m, id) {
			continue
		}
		imported := false
		for _, name := range p.importNames(m.found.file) {
			imported = p.keepImport(o, m, id, beforeDot, name) || imported
		}
		// The compiler refuses an import used only by a directive. So packages with single-word
		// paths need none, such as fmt.
		if beforeDot && !imported && p.loader.Standard(id) && !o.imports.keep(id, id) {
			p.reportConflict(m, id, id)
		}
	}
}

// declares reports whether an identifier is a parameter, a type parameter or a package-level name.
func (p *planner) declares(d *decorator, m *method, id string) bool {
	for _, param := range m.params {
		if param == id {
			return true
		}
	}
	return d.typeParamNames()[id] || p.checked.Types.Scope().Lookup(id) != nil
}

// keepImport imports a package if an identifier is its name, or a name that it declares.
func (p *planner) keepImport(o *output, m *method, id string, beforeDot bool, name *types.PkgName) bool {
	path := name.Imported().Path()
	switch {
	case name.Name() == "." && ast.IsExported(id) && name.Imported().Scope().Lookup(id) != nil:
		o.imports.dots[path] = true
		return true
	case !beforeDot || name.Name() != id:
		return false
	case path == "C":
		p.report.add(m.found.comment.Slash, "//dibs:%s: the name uses package C; call a Go function instead", m.kind())
		m.broken = true
	case !o.imports.keep(id, path):
		p.reportConflict(m, id, path)
	}
	return true
}

func (p *planner) reportConflict(m *method, id, path string) {
	p.report.add(m.found.comment.Slash, "//dibs:%s: %s is package %s here, and another package in another directive of the generated file; import one of them under another name", m.kind(), id, path)
	m.broken = true
}

// name returns the generated file's name.
func (o *output) name() string { return generatedName(o.source) }

func generatedName(source *load.File) string {
	return strings.TrimSuffix(source.Name, ".go") + load.Suffix
}

// code returns the file as Go code.
func (o *output) code() ([]byte, error) {
	text := o.text(false)
	code, err := format.Source([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return code, nil
}

// text returns the file. If mapped, each directive expression has its position there: the
// compiler's errors are then about the source.
func (o *output) text(mapped bool) string {
	e := &emitter{output: o, mapped: mapped}
	for _, d := range o.decorators {
		e.decorator(d)
	}
	var head strings.Builder
	head.WriteString(load.Header + "\n\n")
	if line := buildConstraint(o.source.Syntax); line != "" {
		head.WriteString(line + "\n\n")
	}
	fmt.Fprintf(&head, "package %s\n\n%s", o.source.Syntax.Name.Name, o.imports)
	for _, d := range o.decorators {
		d.start += head.Len()
	}
	return head.String() + e.b.String()
}

// buildConstraint returns the line with a file's build constraint.
func buildConstraint(file *ast.File) string {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if comment.Pos() < file.Package && constraint.IsGoBuild(comment.Text) {
				return comment.Text
			}
		}
	}
	return ""
}
