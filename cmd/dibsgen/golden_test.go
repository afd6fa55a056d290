package main

import (
	"flag"
	"go/format"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

var update = flag.Bool("update", false, "write the generated files of testdata/shapes")

// Each package in testdata/shapes contains a single shape of interface. The first and the second
// run both generate the files in the repository. These compile, and pass go vet and gofmt.
func TestShapes(t *testing.T) {
	shapes := filepath.Join("testdata", "shapes")
	committed := goFiles(t, shapes)
	if n := len(slices.Compact(slices.Sorted(directories(committed)))); n < 30 {
		t.Fatalf("%d shapes found", n)
	}
	dir := newModule(t, nil)
	for name, text := range committed {
		if !strings.HasSuffix(name, load.Suffix) {
			write(t, dir, map[string]string{filepath.Join(shapes, name): text})
		}
	}
	pattern := "./" + filepath.ToSlash(shapes) + "/..."
	if code, _, problems := dibsgen(t, dir, pattern); code != 0 || problems != "" {
		t.Fatalf("have %d, %s", code, problems)
	}
	generated := goFiles(t, filepath.Join(dir, shapes))
	if *update {
		write(t, shapes, generated)
		committed = goFiles(t, shapes)
	}
	for _, name := range slices.Sorted(maps.Keys(generated)) {
		if committed[name] != generated[name] {
			t.Errorf("%s: the generated file differs; see the difference after go test -update:\n%s", name, generated[name])
		}
		if code, err := format.Source([]byte(generated[name])); err != nil || string(code) != generated[name] {
			t.Errorf("%s: gofmt changes the file, or fails: %v", name, err)
		}
	}
	if len(committed) != len(generated) {
		t.Errorf("want %d files, have %d", len(committed), len(generated))
	}
	want(t, dir, 0, "", "", pattern)
	want(t, dir, 0, "", "", "-check", pattern)
	goTool(t, dir, "vet", pattern)
}

// This repository's generated files must be up to date.
func TestRepositoryIsUpToDate(t *testing.T) {
	want(t, "../..", 0, "", "", "-check", "./cmd/dibsgen/...", "./examples/declarative")
}

// directories yields the files' directories.
func directories(files map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range files {
			if !yield(filepath.Dir(name)) {
				return
			}
		}
	}
}
