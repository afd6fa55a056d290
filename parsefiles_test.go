package dibs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// packageFiles returns the parsed files of the package, without its tests.
func packageFiles(t *testing.T) (files []*ast.File) {
	t.Helper()
	entries, err := os.ReadDir(".")
	wantErr(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		wantErr(t, err)
		files = append(files, file)
	}
	return files
}
