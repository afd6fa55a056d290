package generate

import (
	"cmp"
	"fmt"
	"go/types"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// imports chooses the names under which a generated file imports packages.
//
// The names in directives are copied unchanged, so the packages used there keep their names. All
// other imports get a free name.
type imports struct {
	taken  map[string]bool   // names not available to an import
	hiding map[string]bool   // names of parameters and results, which hide an import in a method
	kept   map[string]string // name to path: imports used by directives
	chosen map[string]string // path to name: all other imports
	dots   map[string]bool   // paths of dot imports used by directives
}

func newImports() *imports {
	return &imports{taken: map[string]bool{}, hiding: map[string]bool{}, kept: map[string]string{}, chosen: map[string]string{}, dots: map[string]bool{}}
}

// keep imports a path under a name used by a directive. It reports false if another path already
// has this name.
func (i *imports) keep(name, path string) bool {
	if _, ok := i.kept[name]; !ok {
		i.kept[name] = path
	}
	return i.kept[name] == path
}

// keptNames returns the names given by keep.
func (i *imports) keptNames() map[string]bool {
	names := map[string]bool{}
	for name := range i.kept {
		names[name] = true
	}
	return names
}

// name returns a package's name, and imports the package. All calls to keep come first.
func (i *imports) name(path, preferred string) string {
	if name, ok := i.chosen[path]; ok {
		return name
	}
	name := preferred
	for n := 2; !i.free(name, path); n++ {
		name = preferred + strconv.Itoa(n)
	}
	i.chosen[path] = name
	return name
}

// free reports whether a package can have a name.
func (i *imports) free(name, path string) bool {
	other := i.kept[name]
	for otherPath, chosen := range i.chosen {
		if chosen == name {
			other = otherPath
		}
	}
	hidden := usedInMethods[path] && i.hiding[name]
	return !i.taken[name] && !hidden && (other == "" || other == path)
}

// usedInMethods contains packages whose names are in methods' bodies, where a parameter hides an
// import. All other packages are in signatures only, or see emitter.hides.
var usedInMethods = map[string]bool{DibsPath: true, "context": true, "time": true}

// qualifier returns a function that names a type's package, for types.TypeString. prefer contains
// the source file's names.
func (i *imports) qualifier(own *types.Package, prefer map[string]string) types.Qualifier {
	return func(p *types.Package) string {
		if p == own {
			return ""
		}
		return i.name(p.Path(), cmp.Or(prefer[p.Path()], p.Name()))
	}
}

// String returns the import declaration: the standard library, then the others.
func (i *imports) String() string {
	lines := map[string]bool{} // a package may have two names
	add := func(name, importPath string) {
		if name == path.Base(importPath) {
			name = ""
		}
		lines[strings.TrimSpace(name+" "+strconv.Quote(importPath))] = true
	}
	for name, importPath := range i.kept {
		add(name, importPath)
	}
	for importPath, name := range i.chosen {
		add(name, importPath)
	}
	for importPath := range i.dots {
		add(".", importPath)
	}
	var b strings.Builder
	b.WriteString("import (\n")
	var others []string
	for _, line := range slices.SortedFunc(maps.Keys(lines), byPath) {
		if strings.Contains(strings.SplitN(pathOf(line), "/", 2)[0], ".") {
			others = append(others, line)
			continue
		}
		fmt.Fprintf(&b, "\t%s\n", line)
	}
	fmt.Fprintf(&b, "\n\t%s\n)\n", strings.Join(others, "\n\t"))
	return b.String()
}

func pathOf(line string) string { return strings.Trim(line[strings.IndexByte(line, '"'):], `"`) }

func byPath(a, b string) int { return cmp.Or(cmp.Compare(pathOf(a), pathOf(b)), cmp.Compare(a, b)) }
