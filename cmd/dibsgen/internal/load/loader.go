package load

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Loader reads packages. It keeps the types of the packages that they import.
type Loader struct {
	Set *token.FileSet

	dir   string   // where the go command runs
	flags []string // for go list

	listed   map[string]*listed
	imported map[string]*types.Package // nil while a package is being read
	failed   map[string]error
}

// New returns a Loader for a directory's packages, with the build tags from the go command's flag
// -tags.
func New(dir, tags string) *Loader {
	l := &Loader{
		Set: token.NewFileSet(), dir: dir,
		listed: map[string]*listed{}, imported: map[string]*types.Package{}, failed: map[string]error{},
	}
	if tags != "" {
		l.flags = []string{"-tags=" + tags}
	}
	return l
}

// Packages returns the packages in patterns that may contain a directive, and the directories of
// all packages. Files that cannot be parsed get an error, and the Loader continues.
func (l *Loader) Packages(ctx context.Context, patterns ...string) (packages []*Package, dirs []string, err error) {
	all, err := list(ctx, l.dir, slices.Concat(l.flags, []string{"--"}, patterns)...)
	if err != nil {
		return nil, nil, err
	}
	var problems []error
	for _, found := range all {
		if found.Dir == "" {
			problems = append(problems, fmt.Errorf("package %s: %s", found.ImportPath, found.reason()))
			continue
		}
		dirs = append(dirs, found.Dir)
		p, err := readPackage(l.Set, found)
		switch {
		case err != nil:
			problems = append(problems, err)
		case p != nil:
			packages = append(packages, p)
		}
	}
	return packages, dirs, errors.Join(problems...)
}

func (l *listed) reason() string {
	if l.Error == nil {
		return "not found"
	}
	return strings.Join(strings.Fields(l.Error.Err), " ") // it may have several lines
}

// ListImports lists the packages imported by these packages, and others, which need not exist. It
// must come before Check. The go command is not asked about the packages themselves: a broken
// generated file would be in the way.
func (l *Loader) ListImports(ctx context.Context, packages []*Package, others ...string) error {
	paths := map[string]bool{}
	for _, path := range others {
		paths[path] = true
	}
	for _, p := range packages {
		for _, file := range p.Files {
			if file.Use != Built {
				continue
			}
			for _, spec := range file.Syntax.Imports {
				if path, err := strconv.Unquote(spec.Path.Value); err == nil && path != "C" {
					paths[path] = true
				}
			}
		}
	}
	if len(paths) == 0 {
		return nil // go list would list the directory's package
	}
	all, err := list(ctx, l.dir, slices.Concat(l.flags, []string{"-deps", "--"}, slices.Sorted(maps.Keys(paths)))...)
	if err != nil {
		return err
	}
	for _, found := range all {
		l.listed[found.ImportPath] = found
	}
	return nil
}

// Standard reports whether a path is a package in the standard library. ListImports must have
// listed it.
func (l *Loader) Standard(path string) bool {
	found := l.listed[path]
	return found != nil && found.Standard && found.Error == nil
}

// Checked contains a package's types.
type Checked struct {
	Types  *types.Package
	Info   *types.Info
	Errors []types.Error
}

// Check returns a package's types together with generated files. It also checks their function
// bodies.
func (l *Loader) Check(p *Package, generated ...*ast.File) *Checked {
	var files []*ast.File
	for _, file := range p.Files {
		if file.Use == Built && file.Syntax.Name != nil {
			files = append(files, file.Syntax)
		}
	}
	c := &Checked{Info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{},
	}}
	config := l.config(p.goVersion, nil)
	config.Error = func(err error) {
		var typeError types.Error
		if errors.As(err, &typeError) {
			c.Errors = append(c.Errors, typeError)
		}
	}
	c.Types, _ = config.Check(p.Path, l.Set, append(files, generated...), c.Info) // its error is the first in c.Errors
	return c
}

func (l *Loader) config(goVersion string, importMap map[string]string) *types.Config {
	c := &types.Config{
		Importer:    importer{l, importMap},
		FakeImportC: true, // cgo files then need no C compiler
		Error:       func(error) {},
		Sizes:       types.SizesFor("gc", build.Default.GOARCH),
	}
	if goVersion != "" {
		c.GoVersion = "go" + goVersion
	}
	return c
}

// importer imports for a package.
type importer struct {
	loader    *Loader
	importMap map[string]string // other paths for packages within the standard library
}

// Import implements types.Importer.
func (i importer) Import(path string) (*types.Package, error) {
	if mapped, ok := i.importMap[path]; ok {
		path = mapped
	}
	return i.loader.Import(path)
}

// Import returns an imported package's types. For a package with errors, it returns as many types
// as possible.
func (l *Loader) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	p, seen := l.imported[path]
	switch {
	case l.failed[path] != nil:
		return nil, l.failed[path]
	case seen && p == nil:
		return nil, fmt.Errorf("import cycle through %s", path)
	case seen:
		return p, nil
	}
	l.imported[path] = nil
	p, err := l.read(path)
	if err != nil {
		l.failed[path] = err
		return nil, err
	}
	l.imported[path] = p
	return p, nil
}

func (l *Loader) read(path string) (*types.Package, error) {
	found := l.listed[path]
	switch {
	case found == nil:
		return nil, fmt.Errorf("package %s was not listed", path)
	case found.Dir == "":
		return nil, errors.New(found.reason())
	}
	var files []*ast.File
	for _, name := range slices.Concat(found.GoFiles, found.CgoFiles) {
		name = filepath.Join(found.Dir, name)
		text, err := os.ReadFile(name)
		switch {
		case err != nil:
			return nil, err
		case Generated(name, text):
			continue
		}
		// With an error there is the part before it.
		file, _ := parser.ParseFile(l.Set, name, text, parser.SkipObjectResolution)
		if file != nil && file.Name != nil {
			removeBodies(file)
			l.removeImports(file, found.ImportMap)
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("package %s has no Go files here", path)
	}
	config := l.config(found.Module.GoVersion, found.ImportMap)
	p, _ := config.Check(path, l.Set, files, nil) // an error in it matters only where its types are used
	return p, nil
}
