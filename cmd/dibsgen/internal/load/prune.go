package load

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
)

// removeBodies removes functions' bodies. They can use code that is not generated yet.
func removeBodies(file *ast.File) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}

// removeImports removes a file's imports that only function bodies used. Otherwise the types in
// every package below an imported package would be read.
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

// usedNames returns all identifiers outside imports.
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

// importName returns an import's name, or an empty name if the name is not known.
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
	if found := l.listed[path]; found != nil && found.Error == nil { // otherwise the name can come from a wrong file
		return found.Name
	}
	return ""
}
