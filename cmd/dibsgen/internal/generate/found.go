package generate

import (
	"errors"
	"go/ast"
	"go/token"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/directive"
	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

// found is a directive in a source file.
type found struct {
	*directive.Directive // nil if it is wrong, which is reported
	file                 *load.File
	comment              *ast.Comment
	used                 bool // by a decorated interface's method, or reported
}

// pos returns an offset's place in the comment.
func (f *found) pos(offset int) token.Pos { return f.comment.Slash + token.Pos(offset) }

// directives contains a package's directives.
type directives struct {
	all      []*found
	ofMethod map[token.Pos]*found // by the place of the method's name
}

// findDirectives finds all directives in the built files, and assigns them to methods. It reports
// wrong directives, and directives in tests.
func findDirectives(p *load.Package, report *problems) *directives {
	d := &directives{ofMethod: map[token.Pos]*found{}}
	byComment := map[*ast.Comment]*found{}
	for _, file := range p.Files {
		for f := range commentsOf(file, report) {
			switch file.Use {
			case load.Test:
				report.add(f.comment.Slash, "a directive in a test file; move the interface to a file that is not a test")
			case load.Built:
				d.all = append(d.all, f)
				byComment[f.comment] = f
			}
		}
	}
	for _, file := range p.Files {
		if file.Use == load.Built {
			d.assign(file.Syntax, byComment, report)
		}
	}
	return d
}

// commentsOf yields a file's comments that are, or should be, directives.
func commentsOf(file *load.File, report *problems) func(yield func(*found) bool) {
	return func(yield func(*found) bool) {
		for _, group := range file.Syntax.Comments {
			for _, comment := range group.List {
				parsed, err := directive.Parse(comment.Text)
				if parsed == nil && err == nil {
					continue
				}
				f := &found{Directive: parsed, file: file, comment: comment}
				if wrong, ok := errors.AsType[directive.Errors](err); ok && file.Use == load.Built {
					for _, one := range wrong {
						report.add(f.pos(one.Offset), "%s", one.Text)
					}
					f.used = true
				}
				if !yield(f) {
					return
				}
			}
		}
	}
}

// assign assigns the directives in the comments above methods.
func (d *directives) assign(file *ast.File, byComment map[*ast.Comment]*found, report *problems) {
	ast.Inspect(file, func(n ast.Node) bool {
		it, ok := n.(*ast.InterfaceType)
		if !ok {
			return true
		}
		for _, field := range it.Methods.List {
			if field.Doc == nil {
				continue
			}
			for _, comment := range field.Doc.List {
				if f := byComment[comment]; f != nil {
					d.assignTo(field, f, report)
				}
			}
		}
		return true
	})
}

func (d *directives) assignTo(field *ast.Field, f *found, report *problems) {
	if len(field.Names) == 0 {
		f.used = true
		report.add(f.comment.Slash, "a directive on an embedded interface; it belongs to a method: put it above the methods of that interface, or declare the method here")
		return
	}
	name := field.Names[0]
	if first := d.ofMethod[name.Pos()]; first != nil {
		f.used = true
		report.add(f.comment.Slash, "a second directive on %s; a method has one: //dibs:lock holds several names together", name.Name)
		return
	}
	d.ofMethod[name.Pos()] = f
}

// reportUnused reports directives without a decorator: a lock that nobody holds is worse than an
// error.
func (d *directives) reportUnused(report *problems) {
	for _, f := range d.all {
		if !f.used {
			report.add(f.comment.Slash, "a directive without effect; it belongs directly above a method of an interface type that the package declares, outside of functions")
		}
	}
}
