package layers_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// module is the root module's path, and the prefix for all other modules' paths.
const module = "github.com/dibslock/dibs"

// tree is a repository: its text files, with the Go files parsed.
type tree struct {
	fset  *token.FileSet
	files []file
}

type file struct {
	path   string // from the repository's root, with slashes
	text   []byte
	syntax *ast.File // nil unless it is a Go file built by the go command
	test   bool
}

func (f file) dir() string { return path.Dir(f.path) }

// load reads all files in a repository, whether or not Git tracks them.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed since its directory was listed
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular() || entry.Name() == ".git": // a worktree's .git is a file
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil // binary
		}
		f := file{path: name, text: text, test: strings.HasSuffix(name, "_test.go")}
		if built(name) {
			f.syntax, err = parser.ParseFile(t.fset, name, text, parser.ParseComments)
			if err != nil {
				return err
			}
		}
		t.files = append(t.files, f)
		return nil
	})
	return t, err
}

// built reports whether the go command builds a file.
func built(name string) bool {
	if path.Ext(name) != ".go" {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "testdata" || part == "vendor" || part[0] == '.' || part[0] == '_' {
			return false
		}
	}
	return true
}

// goFiles yields the Go files, including test files if tests is true.
func (t *tree) goFiles(tests bool) func(yield func(file) bool) {
	return func(yield func(file) bool) {
		for _, f := range t.files {
			if f.syntax != nil && (tests || !f.test) && !yield(f) {
				return
			}
		}
	}
}

// at formats a violation: the position, then the text.
func (t *tree) at(node ast.Node, format string, args ...any) string {
	pos := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d: %s", pos.Filename, pos.Line, fmt.Sprintf(format, args...))
}

// imported returns an import's path as a plain string.
func imported(spec *ast.ImportSpec) string {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser accepts no such import
	}
	return name
}

// inProject returns the directory of a package in this repository.
func inProject(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// inStdlib reports whether a package is in the standard library. The go command guarantees that a
// path's first element contains a dot only if the package is not.
func inStdlib(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// layer is a top-level directory, or a directory in internal, internal/test and the like, with
// everything in it.
type layer struct {
	dir      string
	program  bool     // may import everything, use its environment, print
	external bool     // can import the modules required in its go.mod
	imports  []string // layers allowed as imports, except in tests
	library  bool     // users import it, so each exported name needs a comment
}

// layerOf returns a directory's layer. A directory without its own case is an adapter, which
// imports the root only.
func layerOf(dir string) layer {
	parts := strings.Split(dir, "/")
	client, contract := []string{".", "driver"}, []string{"driver"}
	switch parts[0] {
	case "driver":
		return layer{dir: parts[0], imports: []string{"internal/leasekey"}, library: true}
	case ".":
		return layer{dir: ".", imports: []string{"driver", "internal/acquire", "internal/answer", "internal/leasekey", "internal/clock", "internal/lease", "internal/load", "internal/renew", "internal/work"}, library: true}
	case "cmd", "examples", "bench", "interop", "scripts":
		return layer{dir: parts[0], program: true, external: true}
	case "kvstore":
		if len(parts) > 1 && parts[1] == "buckettest" {
			return layer{dir: "kvstore/buckettest", imports: []string{"kvstore"}, library: true}
		}
		return layer{dir: parts[0], imports: []string{"driver", "internal/locktable"}, library: true}
	case "memstore":
		return layer{dir: parts[0], imports: []string{"driver", "kvstore", "internal/locktable"}, library: true}
	case "localstore":
		return layer{dir: parts[0], imports: []string{"driver", "kvstore"}, external: true, library: true}
	case "etcdstore", "zkstore":
		return layer{dir: parts[0], imports: []string{"checkup", "driver"}, external: true, library: true}
	case "pgstore", "mysqlstore":
		return layer{dir: parts[0], imports: []string{"checkup", "driver", "sqlstore"}, external: true, library: true}
	case "sqlstore":
		return layer{dir: parts[0], imports: []string{"driver", "internal/load", "internal/serverclock", "internal/tlsadvice"}, library: true}
	case "checkup", "quorum":
		return layer{dir: parts[0], imports: contract, library: true}
	case "contrib":
		return layer{dir: path.Join(parts[:min(2, len(parts))]...), imports: append([]string{"observe/classes", "observe/outcome"}, client...), external: true, library: true}
	case "dashboard":
		return dashboardLayer(path.Join(parts[:min(2, len(parts))]...))
	case "observe":
		return layer{dir: path.Join(parts[:min(2, len(parts))]...), imports: client, library: true}
	case "cohort":
		return layer{dir: parts[0], imports: client, library: true}
	case "storetest":
		return layer{dir: parts[0], imports: append([]string{"internal/test/history"}, client...), library: true}
	case "redisstore":
		return layer{dir: parts[0], imports: []string{"checkup", "driver", "internal/load", "internal/serverclock", "internal/tlsadvice"}, library: true}
	case "goredisstore", "rueidisstore", "redigostore":
		return layer{dir: parts[0], imports: []string{"driver", "redisstore"}, external: true, library: true}
	case "internal":
		if len(parts) > 2 && (parts[1] == "test" || parts[1] == "repo") {
			return rigLayer(path.Join(parts[:3]...))
		}
		return internalLayer(path.Join(parts[:min(2, len(parts))]...))
	}
	return layer{dir: parts[0], imports: client, external: true, library: true}
}

// dashboardLayer returns the layer for the page, or for its contents.
func dashboardLayer(dir string) layer {
	l := layer{dir: dir, library: true}
	switch dir {
	case "dashboard/waitgraph":
		l.imports = []string{"driver"}
	case "dashboard/view":
		l.imports = []string{"checkup", "driver", "dashboard/waitgraph"}
	case "dashboard/watch":
		l.imports = []string{"driver", "dashboard/view"}
	default:
		l.imports, l.external = []string{"checkup", "driver", "observe/classes", "dashboard/view", "dashboard/waitgraph", "dashboard/watch"}, true
	}
	return l
}

// internalLayer returns the layer for a package shared by several packages in the project.
func internalLayer(dir string) layer {
	l := layer{dir: dir, imports: []string{".", "driver"}}
	switch dir {
	case "internal/locktable":
		l.imports = []string{"driver"}
	case "internal/clock", "internal/serverclock", "internal/tlsadvice":
		l.imports = nil
	case "internal/load", "internal/work":
		l.imports = []string{"internal/clock"}
	case "internal/answer":
		l.imports = []string{"driver", "internal/load"}
	case "internal/acquire":
		l.imports = []string{"driver", "internal/answer", "internal/leasekey", "internal/clock", "internal/load", "internal/work"}
	case "internal/lease":
		l.imports = []string{"driver", "internal/clock", "internal/load"}
	case "internal/renew":
		l.imports = []string{"driver", "internal/clock", "internal/lease", "internal/load"}
	}
	return l
}

// rigLayer returns the layer for a test rig, or for checks of the repository.
func rigLayer(dir string) layer {
	l := layer{dir: dir, imports: []string{".", "driver"}}
	switch dir {
	case "internal/test/loadsim":
		l.imports = []string{".", "driver", "memstore"}
	case "internal/test/history":
		l.imports = []string{".", "cohort", "driver"}
	case "internal/test/spawn":
		l.imports = nil
	case "internal/test/checkuptest":
		l.imports = []string{"checkup"}
	case "internal/test/pgtest", "internal/test/mysqltest", "internal/test/zktest":
		l.imports = []string{"internal/test/spawn"}
	case "internal/test/etcdtest":
		l.imports = []string{"internal/test/redistest", "internal/test/spawn"}
	case "internal/test/redistest":
		l.imports = []string{"redisstore", "internal/test/spawn"}
	case "internal/test/duetest":
		l.imports = []string{".", "internal/test/childtest"}
	case "internal/test/sqldrill":
		l.imports = []string{".", "cohort", "driver", "internal/test/carried", "internal/test/redistest"}
	case "internal/test/drill":
		l.imports = []string{".", "driver", "quorum", "redisstore", "storetest", "internal/test/carried", "internal/test/history", "internal/test/redistest"}
	case "internal/test/linear", "internal/test/pagetest":
		l.external = true
	}
	return l
}
