package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"

	"golang.org/x/tools/go/analysis"
)

// edit replaces a node by a text.
func edit(n ast.Node, text string) analysis.TextEdit {
	return analysis.TextEdit{Pos: n.Pos(), End: n.End(), NewText: []byte(text)}
}

// fix returns a fix that needs a package in the standard library, and imports it if necessary. It
// returns no fix if the package's name means something else at n.
func (f *finder) fix(n ast.Node, message, path string, edits ...analysis.TextEdit) []analysis.SuggestedFix {
	file := f.file(n.Pos())
	if file == nil {
		return nil
	}
	scope := f.pass.Pkg.Scope().Innermost(n.Pos())
	if scope == nil {
		return nil
	}
	_, found := scope.LookupParent(path, n.Pos())
	name, isPackage := found.(*types.PkgName)
	switch {
	case isPackage && name.Imported().Path() == path:
	case found != nil || len(file.Imports) == 0:
		return nil
	default:
		edits = append(edits, importEdit(file, path))
	}
	return []analysis.SuggestedFix{{Message: message, TextEdits: edits}}
}

// importEdit adds an import before a file's first import. The file must contain an import.
func importEdit(file *ast.File, path string) analysis.TextEdit {
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || len(group.Specs) == 0 || group.Specs[0] != ast.Spec(file.Imports[0]) {
			continue
		}
		if group.Lparen.IsValid() {
			first := group.Specs[0].Pos()
			return analysis.TextEdit{Pos: first, End: first, NewText: []byte(strconv.Quote(path) + "\n\t")}
		}
		return analysis.TextEdit{Pos: group.Pos(), End: group.Pos(), NewText: []byte("import " + strconv.Quote(path) + "\n\n")}
	}
	return analysis.TextEdit{}
}

// file returns a position's file.
func (f *finder) file(at token.Pos) *ast.File {
	for _, file := range f.pass.Files {
		if file.FileStart <= at && at < file.FileEnd {
			return file
		}
	}
	return nil
}
