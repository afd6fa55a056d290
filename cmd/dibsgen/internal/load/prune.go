package load

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
)

// removeBodies removes the bodies of functions. They may use code that is not generated so far.
func removeBodies(file *ast.File) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}

// removeImports removes the imports of a file that only function bodies used. Otherwise the
// types of every package below an imported one would be read.
func (l *Loader) removeImports(file *ast.File, importMap map[string]string) {
	used := usedNames(file)
	unused := func(spec *ast.ImportSpec) bool {
		name := l.importName(spec, importMap)
		return name != "" && name != "." && !used[name]
	}
	file.Imports = slices.DeleteFunc(file.Imports, unused)
	file.Decls = slices.DeleteFunc(file.Decls, func(decl ast.Decl) bool {
		imports := importsOf(decl)
		if imports == nil {
			return false
		}
		imports.Specs = slices.DeleteFunc(imports.Specs, func(spec ast.Spec) bool {
			one, ok := spec.(*ast.ImportSpec)
			return ok && unused(one)
		})
		return len(imports.Specs) == 0 // an empty declaration has no end
	})
}

// importsOf returns an import declaration, or nil.
func importsOf(decl ast.Decl) *ast.GenDecl {
	if imports, ok := decl.(*ast.GenDecl); ok && imports.Tok == token.IMPORT {
		return imports
	}
	return nil
}

// usedNames returns all identifiers outside of imports.
func usedNames(file *ast.File) map[string]bool {
	used := map[string]bool{}
	for _, decl := range file.Decls {
		if importsOf(decl) != nil {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
	}
	return used
}

// importName returns the name of an import, or an empty name if that is not known.
func (l *Loader) importName(spec *ast.ImportSpec, importMap map[string]string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return ""
	}
	if mapped, ok := importMap[path]; ok {
		path = mapped
	}
	if found := l.listed[path]; found != nil && found.Error == nil { // otherwise the name may be that of a wrong file
		return found.Name
	}
	return ""
}
