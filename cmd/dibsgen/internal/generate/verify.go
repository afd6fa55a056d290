package generate

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// verify compiles the generated files with the package, and reports the errors as errors in the
// directives. So the names in directives are checked by the language's rules, and not by this
// program's.
func (p *planner) verify(outputs []*output) {
	if _, err := p.loader.Import(DibsPath); err != nil {
		first := outputs[0].decorators[0].spec.Name
		p.report.add(first.Pos(), "generated code needs package %s: %v; run: go get %s", DibsPath, err, DibsPath)
		return
	}
	var files []*ast.File
	generated := map[*token.File]*output{}
	byLine := map[line]*found{}
	for _, o := range outputs {
		o.recordLines(byLine)
		text := o.text(true)
		p.checkInternal(o)
		file, err := parser.ParseFile(p.loader.Set, o.name(), text, parser.SkipObjectResolution)
		if err != nil {
			p.report.add(o.decorators[0].spec.Name.Pos(), "dibsgen generates wrong code, please report this error: %v\n%s", err, text)
			return
		}
		files = append(files, file)
		generated[p.loader.Set.File(file.Package)] = o
	}
	checked := p.loader.Check(p.pkg, files...)
	for _, err := range checked.Errors {
		if o := generated[p.loader.Set.File(err.Pos)]; o != nil && !strings.HasPrefix(err.Msg, "\t") {
			p.reportCompileError(err, o, byLine)
		}
	}
	for _, file := range files {
		p.checkConstants(file, checked.Info)
	}
}

// line is a line in a source file.
type line struct {
	file string
	line int
}

func (o *output) recordLines(byLine map[line]*found) {
	for _, d := range o.decorators {
		for _, m := range d.methods {
			if m.locked() {
				at := o.set.Position(m.found.comment.Slash)
				byLine[line{at.Filename, at.Line}] = m.found
			}
		}
	}
}

// reportCompileError reports a compiler error in generated code. Its position is in a directive, or
// in the generated file.
func (p *planner) reportCompileError(err types.Error, o *output, byLine map[line]*found) {
	at := p.loader.Set.Position(err.Pos)
	f := byLine[line{at.Filename, at.Line}]
	d := o.decoratorAt(p.loader.Set.PositionFor(err.Pos, false).Offset)
	switch {
	case f == nil && d.broken:
	case f == nil:
		p.report.add(d.spec.Name.Pos(), "%s", err.Msg)
	case strings.HasPrefix(err.Msg, "undefined: "):
		p.report.addAt(at, "//dibs:%s: %s; a name may use named parameters of its method, names of the package, and imports of its file", f.Kind, err.Msg)
	default:
		p.report.addAt(at, "//dibs:%s: %s", f.Kind, err.Msg)
	}
}

// decoratorAt returns the decorator whose code contains an offset, or the first if the offset is
// before all.
func (o *output) decoratorAt(offset int) *decorator {
	found := o.decorators[0]
	for _, d := range o.decorators {
		if d.start <= offset {
			found = d
		}
	}
	return found
}

// checkInternal reports imports that the go command would refuse.
func (p *planner) checkInternal(o *output) {
	for path := range o.imports.chosen {
		if !mayImport(p.pkg.Path, path) {
			p.report.add(o.decorators[0].spec.Name.Pos(), "the methods of %s use a type of package %s, which this package cannot import", o.decorators[0].name, path)
		}
	}
}

// mayImport reports whether a package may import another by the rule for internal packages.
func mayImport(from, path string) bool {
	padded := "/" + path + "/"
	i := strings.LastIndex(padded, "/internal/")
	if i < 0 {
		return true
	}
	parent := strings.Trim(padded[:i], "/")
	return parent != "" && (from == parent || strings.HasPrefix(from, parent+"/"))
}

// checkConstants reports constant names, and permit numbers, that dibs rejects.
func (p *planner) checkConstants(file *ast.File, info *types.Info) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		method := lockMethod(call, info)
		args := call.Args
		if list, ok := args[0].(*ast.CompositeLit); ok && method == "All" {
			args = list.Elts
		}
		for i, arg := range args {
			value := info.Types[arg].Value
			switch {
			case method == "" || value == nil:
			case value.Kind() == constant.String:
				p.checkName(arg, constant.StringVal(value))
			case method == "Semaphore" && i == 1:
				p.checkCount(arg, value)
			}
		}
		return true
	})
}

// lockMethod returns the method of dibs.Client that a call calls, or an empty name.
func lockMethod(call *ast.CallExpr, info *types.Info) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	f, ok := info.Uses[selector.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != DibsPath || f.Signature().Recv() == nil {
		return ""
	}
	switch f.Name() {
	case "Mutex", "All", "RWMutex", "Semaphore", "Once":
		return f.Name()
	}
	return ""
}

func (p *planner) checkName(arg ast.Expr, name string) {
	if err := driver.CheckName(name); err != nil {
		p.report.add(arg.Pos(), "%s", strings.TrimPrefix(err.Error(), driver.ErrInvalid.Error()+": "))
	}
}

func (p *planner) checkCount(arg ast.Expr, value constant.Value) {
	low, high := constant.MakeInt64(1), constant.MakeInt64(driver.Unlimited)
	if constant.Compare(value, token.LSS, low) || constant.Compare(value, token.GTR, high) {
		p.report.add(arg.Pos(), "%s permits: not within 1 to %d", value, driver.Unlimited)
	}
}
