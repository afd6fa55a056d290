package layers_test

import (
	"go/ast"
	"slices"
)

// pure contains the packages with state machines and formats, and their allowed imports besides
// pureImports.
var pure = map[string][]string{
	"internal/lease":              {module + "/internal/clock", module + "/internal/load"},
	"internal/locktable":          nil,
	"quorum/internal/core":        nil,
	"redisstore/internal/foreign": {"regexp", "sync", "unicode", "unicode/utf8"},
	"redisstore/internal/wire": { // embed: the scripts; crypto/rand: an argument; sync: values made once
		"crypto/rand", "crypto/sha1", "embed", "encoding/hex", "sync", module + "/redisstore/internal/foreign", module + "/redisstore/redisconn",
	},
}

// pureImports contains the imports allowed in such a package. Types from package context are passed
// on, and not used.
var pureImports = []string{
	"cmp", "container/heap", "context", "errors", "fmt", "maps", "math", "path", "slices", "strconv", "strings", "time",
	module + "/driver", module + "/driver/glob", module + "/driver/ownertoken",
}

// timers contains the clock functions in package time.
var timers = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// impureCode returns code on which a state machine depends, besides its arguments.
func impureCode(t *tree) (found []string) {
	for f := range t.goFiles(false) {
		more, is := pure[f.dir()]
		if !is {
			continue
		}
		for _, spec := range f.syntax.Imports {
			if name := imported(spec); !slices.Contains(pureImports, name) && !slices.Contains(more, name) {
				found = append(found, t.at(spec, "%s imports %s", f.dir(), name))
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = append(found, t.at(n, "%s starts a goroutine", f.dir()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && x.Name == "time" && slices.Contains(timers, n.Sel.Name) {
					found = append(found, t.at(n, "%s uses time.%s", f.dir(), n.Sel.Name))
				}
			}
			return true
		})
	}
	return found
}
