package generate

import (
	"fmt"
	"go/token"
	"go/types"
	"maps"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/directive"
)

// emitter writes decorators as code.
type emitter struct {
	*output
	mapped bool
	b      strings.Builder

	// The current decorator's data:
	d     *decorator
	names structNames
}

// structNames contains the type's fields.
type structNames struct {
	locks, next, options string
	own                  map[*method]string // the directives' options
}

func (e *emitter) printf(format string, args ...any) { fmt.Fprintf(&e.b, format, args...) }

// at returns a comment that gives the code after it the position of a place in a directive.
func (e *emitter) at(pos token.Pos) string {
	if !e.mapped {
		return ""
	}
	place := e.set.Position(pos)
	return fmt.Sprintf("/*line %s:%d:%d*/", place.Filename, place.Line, place.Column)
}

// noPlace returns a comment that ends at's effect.
func (e *emitter) noPlace() string {
	if !e.mapped {
		return ""
	}
	return "/*line " + e.name() + ":1:1*/"
}

// pkg returns a package's name in the generated code.
func (e *emitter) pkg(path, preferred string) string {
	if name := e.prefer[path]; name != "" {
		preferred = name
	}
	return e.imports.name(path, preferred)
}

func (e *emitter) dibs() string    { return e.pkg(DibsPath, "dibs") }
func (e *emitter) context() string { return e.pkg("context", "context") }
func (e *emitter) time() string    { return e.pkg("time", "time") }
func (e *emitter) slices() string  { return e.pkg("slices", "slices") }

// decorator writes a constructor, a type and its methods.
func (e *emitter) decorator(d *decorator) {
	e.d = d
	d.start = e.b.Len()
	e.names = nameFields(d)
	e.constructor()
	e.structType()
	for _, m := range d.methods {
		e.method(m)
	}
}

// nameFields names the fields. A type cannot have a field and a method with the same name.
func nameFields(d *decorator) structNames {
	taken := map[string]bool{}
	for _, m := range d.methods {
		taken[m.name] = true
	}
	field := func(preferred string) string {
		name := fresh(preferred, taken)
		taken[name] = true
		return name
	}
	names := structNames{locks: field("locks"), next: field("next"), options: field("options"), own: map[*method]string{}}
	for _, m := range d.methods {
		if m.locked() && len(m.found.Options) > 0 {
			names.own[m] = field(lowerFirst(m.name) + "Options")
		}
	}
	return names
}

// multi reports whether the method holds a multi-lock.
func (m *method) multi() bool {
	return m.kind() == directive.Lock && (m.found.Spread || len(m.found.Names) > 1)
}

// typeParams returns the type parameters as a declaration and as arguments.
func (e *emitter) typeParams() (declared, args string) {
	list := e.d.typeParams
	if list.Len() == 0 {
		return "", ""
	}
	var params, names []string
	taken := e.d.typeParamNames()
	for param := range list.TypeParams() {
		name := param.Obj().Name()
		if name == "_" {
			name = fresh("P", taken, e.taken, e.d.taken)
			taken[name] = true
		}
		names = append(names, name)
		params = append(params, name+" "+e.typeString(param.Constraint()))
	}
	return "[" + strings.Join(params, ", ") + "]", "[" + strings.Join(names, ", ") + "]"
}

func (e *emitter) constructor() {
	declared, args := e.typeParams()
	taken := e.d.typeParamNames()
	taken[e.dibs()] = true
	locks, next, options := fresh("locks", taken), fresh("next", taken), fresh("options", taken)
	d := e.d
	e.printf("\n// %s returns next under the locks that the directives of %s declare.\n// The options apply to all locks. An option of a directive wins.\n", d.constructor, d.name)
	e.printf("func %s%s(%s *%s.Client, %s %s%s, %s ...%s.Option) %s%s {\n", d.constructor, declared,
		locks, e.dibs(), next, d.name, args, options, e.dibs(), d.name, args)
	e.printf("return &%s%s{\n%s: %s,\n%s: %s,\n%s: %s.Clone(%s),\n", d.typeName, args, e.names.locks, locks, e.names.next, next,
		e.names.options, e.slices(), options)
	for _, m := range d.methods {
		if field, ok := e.names.own[m]; ok {
			e.printf("%s: %s,\n", field, e.optionsOf(m))
		}
	}
	e.printf("}\n}\n")
}

// optionsOf returns a directive's options as code.
func (e *emitter) optionsOf(m *method) string {
	codes := make([]string, len(m.found.Options))
	for i, option := range m.found.Options {
		timeName := ""
		if option.UsesTime() {
			timeName = e.time()
		}
		codes[i] = option.Code(e.dibs(), timeName)
	}
	return "[]" + e.dibs() + ".Option{" + strings.Join(codes, ", ") + "}"
}

func (e *emitter) structType() {
	declared, args := e.typeParams()
	e.printf("\ntype %s%s struct {\n%s *%s.Client\n%s %s%s\n%s []%s.Option // of all locks\n", e.d.typeName, declared,
		e.names.locks, e.dibs(), e.names.next, e.d.name, args, e.names.options, e.dibs())
	if len(e.names.own) > 0 {
		e.printf("\n")
	}
	for _, m := range e.d.methods {
		if field, ok := e.names.own[m]; ok {
			e.printf("%s []%s.Option\n", field, e.dibs())
		}
	}
	e.printf("}\n")
}

func (e *emitter) method(m *method) {
	_, args := e.typeParams()
	head := fmt.Sprintf("\nfunc (%s *%s%s) %s(%s)", e.d.receiver, e.d.typeName, args, m.name, e.parameters(m))
	results := e.results(m.signature.Results())
	call := e.d.receiver + "." + e.names.next + "." + m.name + "(" + e.arguments(m) + ")"
	switch values := m.signature.Results().Len() - 1; {
	case !m.locked():
		e.passOn(m, head, results, call)
	case values == 0:
		fn := fmt.Sprintf("func(%s %s.Context) error {\nreturn %s\n}", m.params[0], e.context(), call)
		e.printf("%s error {\nreturn %s\n}\n", head, e.do(m, fn))
	default:
		e.withNamedResults(m, head, call)
	}
}

// passOn writes a method without a directive.
func (e *emitter) passOn(m *method, head, results, call string) {
	if m.signature.Results().Len() == 0 {
		e.printf("%s {\n%s\n}\n", head, call)
		return
	}
	e.printf("%s %s {\nreturn %s\n}\n", head, results, call)
}

// do returns a call to the lock's Do.
func (e *emitter) do(m *method, fn string) string {
	return fmt.Sprintf("%s.Do(%s, %s%s)", e.lock(m), m.params[0], fn, e.callOptions(m))
}

// withNamedResults writes a method with values. The function under the lock sets them.
func (e *emitter) withNamedResults(m *method, head, call string) {
	taken := m.names()
	maps.Copy(taken, e.d.typeParamNames())
	taken["error"], taken[e.context()] = true, true // the function under the lock needs them
	var values, typeNames []string
	results := m.signature.Results()
	for i := range results.Len() {
		preferred := "r" + strconv.Itoa(i+1)
		if i == results.Len()-1 {
			preferred = "err"
		}
		if name := results.At(i).Name(); name != "" && name != "_" && !taken[name] {
			preferred = name
		}
		name := fresh(preferred, taken)
		taken[name] = true
		values = append(values, name)
		typeNames = append(typeNames, e.typeString(results.At(i).Type()))
	}
	err := values[len(values)-1]
	list := strings.Join(values, ", ")
	fn := fmt.Sprintf("func(%s %s.Context) (%s error) {\n%s = %s\nreturn %s\n}", m.params[0], e.context(), err, list, call, err)
	e.printf("%s (%s) {\n%s = %s\nreturn %s\n}\n", head, declarations(values, typeNames), err, e.do(m, fn), list)
}

// names returns the names with a meaning in the method.
func (m *method) names() map[string]bool {
	names := map[string]bool{}
	for _, name := range m.params {
		names[name] = true
	}
	for name := range m.uses {
		names[name] = true
	}
	for name := range m.boundBy {
		names[name] = true
	}
	return names
}

// lock returns a directive's lock as code.
func (e *emitter) lock(m *method) string {
	locks := e.d.receiver + "." + e.names.locks
	names := make([]string, len(m.found.Names))
	for i, name := range m.found.Names {
		names[i] = e.expression(m, name)
	}
	list := strings.Join(names, ", ")
	options := ", " + e.d.receiver + "." + e.names.options + "..."
	switch m.kind() {
	case directive.Read:
		return fmt.Sprintf("%s.RWMutex(%s%s).Reader()", locks, list, options)
	case directive.Write:
		return fmt.Sprintf("%s.RWMutex(%s%s).Writer()", locks, list, options)
	case directive.Permits:
		return fmt.Sprintf("%s.Semaphore(%s, %s%s).Permits(1)", locks, list, e.expression(m, m.found.Count), options)
	case directive.Once:
		return fmt.Sprintf("%s.Once(%s, %s%s)", locks, list, directive.DurationCode(m.found.Interval, e.time()), options)
	}
	switch {
	case m.found.Spread:
		return fmt.Sprintf("%s.All(%s%s)", locks, list, options)
	case m.multi():
		return fmt.Sprintf("%s.All([]string{%s}%s)", locks, list, options)
	}
	return fmt.Sprintf("%s.Mutex(%s%s)", locks, list, options)
}

// expression returns a directive's expression, with types in place of bound type parameters.
func (e *emitter) expression(m *method, expr directive.Expression) string {
	var b strings.Builder
	at := 0
	for _, use := range typeUses(expr.Text, m.bound) {
		text := e.typeString(m.bound[use.name])
		if use.operand && !token.IsIdentifier(text) {
			text = "(" + text + ")"
		}
		b.WriteString(e.at(m.found.pos(expr.Offset+at)) + expr.Text[at:use.offset])
		b.WriteString(e.at(m.found.pos(expr.Offset+use.offset)) + text)
		at = use.end
	}
	b.WriteString(e.at(m.found.pos(expr.Offset+at)) + expr.Text[at:] + e.noPlace())
	return b.String()
}

// callOptions returns the last argument of a call: the options of the directive.
func (e *emitter) callOptions(m *method) string {
	if field, ok := e.names.own[m]; ok {
		return ", " + e.d.receiver + "." + field + "..."
	}
	return ""
}

// parameters returns a method's parameters.
func (e *emitter) parameters(m *method) string {
	params := m.signature.Params()
	typeNames := make([]string, params.Len())
	for i := range typeNames {
		t := params.At(i).Type()
		slice, ok := t.(*types.Slice)
		if ok && m.signature.Variadic() && i == params.Len()-1 {
			typeNames[i] = "..." + e.typeString(slice.Elem())
			continue
		}
		typeNames[i] = e.typeString(t)
	}
	return declarations(m.params, typeNames)
}

// declarations returns variables with their types. Adjacent variables with the same type share it.
func declarations(names, typeNames []string) string {
	var b strings.Builder
	for i, name := range names {
		b.WriteString(name)
		if last := i+1 == len(names); last || typeNames[i] != typeNames[i+1] {
			b.WriteString(" " + typeNames[i])
		}
		if i+1 < len(names) {
			b.WriteString(", ")
		}
	}
	return b.String()
}

// arguments returns the parameters as arguments.
func (e *emitter) arguments(m *method) string {
	list := strings.Join(m.params, ", ")
	if m.signature.Variadic() {
		list += "..."
	}
	return list
}

// results returns the results' types, in parentheses if there are several.
func (e *emitter) results(results *types.Tuple) string {
	list := make([]string, results.Len())
	for i := range list {
		list[i] = e.typeString(results.At(i).Type())
	}
	if len(list) == 1 {
		return list[0]
	}
	return "(" + strings.Join(list, ", ") + ")"
}
