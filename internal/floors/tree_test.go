package floors_test

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

// module is the root module's path, and the prefix of every other one's.
const module = "github.com/dibslock/dibs"

// A tree is a repository as the rules see it: its text files, the Go ones parsed.
type tree struct {
	fset  *token.FileSet
	files []file
}

type file struct {
	path   string // from the repository's root, with slashes
	text   []byte
	syntax *ast.File // nil unless it is Go that the go command would build
	test   bool
}

func (f file) dir() string { return path.Dir(f.path) }

// load reads a repository, tracked or not: what is not tracked yet is about to be.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since its directory was listed
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

// built reports whether the go command looks at a file at all.
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

// goFiles yields the Go files, those of tests only if asked for.
func (t *tree) goFiles(tests bool) func(yield func(file) bool) {
	return func(yield func(file) bool) {
		for _, f := range t.files {
			if f.syntax != nil && (tests || !f.test) && !yield(f) {
				return
			}
		}
	}
}

// at words a violation: where, then what.
func (t *tree) at(node ast.Node, format string, args ...any) string {
	pos := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d: %s", pos.Filename, pos.Line, fmt.Sprintf(format, args...))
}

// imported returns the path of an import as a plain string.
func imported(spec *ast.ImportSpec) string {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser accepts no such import
	}
	return name
}

// inProject returns the directory of a package of this repository.
func inProject(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// inStdlib relies on what the go command promises: no standard package has a
// dot in its first element, and every package to be fetched has one.
func inStdlib(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// A room is a directory of the house with everything in it.
type room struct {
	dir     string
	roof    bool     // may import everything, read its environment, print
	doors   bool     // may import what its own go.mod requires
	below   []string // the rooms it may import, outside tests
	library bool     // users import it, so that each exported name is explained
}

// roomOf places a directory on the floor plan. One that the plan does not name
// is a door to something other than Redis, and knows the ground only.
func roomOf(dir string) room {
	parts := strings.Split(dir, "/")
	ground := []string{"."}
	switch parts[0] {
	case ".":
		return room{dir: ".", library: true}
	case "cmd", "examples", "bench", "interop":
		return room{dir: parts[0], roof: true, doors: true}
	case "memstore":
		return room{dir: parts[0], below: []string{".", "internal/ledger"}, library: true}
	case "localstore":
		return room{dir: parts[0], below: []string{".", "internal/ledger"}, doors: true, library: true}
	case "quorum", "storetest":
		return room{dir: parts[0], below: ground, library: true}
	case "redisstore":
		if len(parts) > 1 && parts[1] != "internal" {
			return room{dir: path.Join(parts[:2]...), below: []string{".", "redisstore"}, doors: true, library: true}
		}
		return room{dir: parts[0], below: ground, library: true}
	case "internal":
		r := room{dir: path.Join(parts[:min(2, len(parts))]...), below: ground}
		switch r.dir {
		case "internal/redistest":
			r.below = []string{".", "redisstore"}
		case "internal/drill":
			r.below = []string{".", "quorum", "redisstore", "storetest", "internal/history", "internal/redistest"}
		case "internal/linear":
			r.doors = true
		}
		return r
	}
	return room{dir: parts[0], below: ground, doors: true, library: true}
}
