// Package generate writes code for decorators: types that call an interface's methods under the
// locks declared in its directives.
package generate

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

// A File is a generated file.
type File struct {
	Name string
	Code []byte
}

// Imports returns the paths of packages that a package's generated code may import, and its source
// need not import. Some may not exist.
func Imports(loader *load.Loader, pkg *load.Package) []string {
	paths := []string{DibsPath}
	for _, f := range findDirectives(pkg, &problems{set: loader.Set}).all {
		if f.Directive == nil {
			continue
		}
		for _, expr := range f.expressions() {
			freeNames(expr.Text, func(name string, beforeDot bool) {
				if beforeDot {
					paths = append(paths, name)
				}
			})
		}
	}
	return paths
}

// A Result contains the files generated for a package.
type Result struct {
	Files    []File
	Kept     []string // generated files whose sources are excluded, which cannot be checked now
	Problems []Problem
	Notices  []Problem
}

// Package generates a package's files, or none with problems. The loader must have listed the
// package's imports, and the results of Imports.
func Package(loader *load.Loader, pkg *load.Package) Result {
	report := &problems{set: loader.Set}
	var result Result
	result.addExcluded(loader, pkg)
	directives := findDirectives(pkg, report)
	// A parser error counts even if no directive is found: a directive can follow it.
	if reportSyntax(pkg, report) && len(directives.all) > 0 {
		p := newPlanner(loader, pkg, directives, report)
		result.Files = p.files()
		directives.reportUnused(report)
	}
	if result.Problems = report.list; len(result.Problems) > 0 {
		result.Files = nil
	}
	return result
}

// addExcluded adds a notice for each file with directives that its build constraint excludes: its
// types cannot be determined for this platform.
func (r *Result) addExcluded(loader *load.Loader, pkg *load.Package) {
	for _, file := range pkg.Files {
		if file.Use != load.Excluded {
			continue
		}
		ignored := &problems{set: loader.Set}
		for f := range commentsOf(file, ignored) {
			r.Kept = append(r.Kept, generatedName(file))
			r.Notices = append(r.Notices, Problem{
				loader.Set.Position(f.comment.Slash),
				"skipped: the build constraint excludes the file; run dibsgen with the GOOS, GOARCH or -tags of the file, too",
			})
			break
		}
	}
}

// reportSyntax reports parser errors, and files that cannot be in one package. It returns whether
// there are none.
func reportSyntax(pkg *load.Package, report *problems) bool {
	before := len(report.list)
	name := ""
	for _, file := range pkg.Files {
		switch {
		case file.Use != load.Built:
		case file.Err != nil:
			report.addSyntax(file.Err)
		case name == "":
			name = file.Syntax.Name.Name
		case file.Syntax.Name.Name != name:
			report.add(file.Syntax.Name.Pos(), "package %s; the other files of the directory are of package %s", file.Syntax.Name.Name, name)
		}
	}
	return len(report.list) == before
}

func newPlanner(loader *load.Loader, pkg *load.Package, directives *directives, report *problems) *planner {
	p := &planner{
		loader: loader, pkg: pkg, checked: loader.Check(pkg),
		directives: directives, report: report, taken: map[string]bool{},
	}
	for _, name := range p.checked.Types.Scope().Names() {
		p.taken[name] = true
	}
	return p
}

// files returns the package's generated files.
func (p *planner) files() (files []File) {
	outputs := p.outputs()
	if len(outputs) == 0 {
		return nil
	}
	p.verify(outputs)
	if len(p.report.list) > 0 {
		return nil
	}
	for _, o := range outputs {
		code, err := o.code()
		if err != nil { // not reached: verify parsed it
			p.report.add(o.decorators[0].spec.Name.Pos(), "dibsgen generates wrong code, please report this error: %v", err)
			continue
		}
		files = append(files, File{Name: o.name(), Code: code})
	}
	return files
}

// outputs plans a file for each source file with decorators.
func (p *planner) outputs() (outputs []*output) {
	decorators := p.plan()
	for _, source := range p.pkg.Files {
		own := slices.DeleteFunc(slices.Clone(decorators), func(d *decorator) bool { return d.file != source })
		if len(own) == 0 {
			continue
		}
		o := p.newOutput(source, own)
		p.checkSource(o)
		outputs = append(outputs, o)
	}
	return outputs
}

// checkSource rejects sources for which no file can be generated.
func (p *planner) checkSource(o *output) {
	for _, spec := range o.source.Syntax.Imports {
		if spec.Path.Value == `"C"` {
			p.report.add(o.decorators[0].spec.Name.Pos(), "interface %s is in a file that imports C; move it to a file without cgo", o.decorators[0].name)
		}
	}
	text, err := os.ReadFile(o.name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		p.report.add(o.source.Syntax.Package, "the generated file cannot be read: %v", err)
	case !load.Generated(o.name(), text):
		p.report.add(o.source.Syntax.Package, "the file would be %s, which exists and has no header of dibsgen; rename that file", o.name())
	}
}
