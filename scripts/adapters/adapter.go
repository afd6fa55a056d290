package main

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// standard is the library for an adapter to the standard library. Its versions are Go's.
const standard = "Go"

// An adapter is a package in contrib, with the versions documented in its package comment.
type adapter struct {
	name, dir      string
	library        string
	oldest, newest string
	module         module
}

// A module contains the output from go mod edit -json.
type module struct {
	Go      string
	Require []struct{ Path, Version string }
}

// readAdapters reads all adapters in a working tree.
func readAdapters(root string) ([]adapter, error) {
	files, err := filepath.Glob(filepath.Join(root, "contrib", "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	adapters := make([]adapter, 0, len(files))
	for _, file := range files {
		a, err := readAdapter(filepath.Dir(file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Dir(file), err)
		}
		adapters = append(adapters, a)
	}
	return adapters, nil
}

func readAdapter(dir string) (adapter, error) {
	comment, err := packageComment(dir)
	if err != nil {
		return adapter{}, err
	}
	a, err := parseVersions(comment)
	if err != nil {
		return adapter{}, err
	}
	a.name, a.dir = filepath.Base(dir), dir
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	if err != nil {
		return adapter{}, err
	}
	return a, json.Unmarshal(out, &a.module)
}

// packageComment returns the package comment in a single line.
func packageComment(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		if parsed.Doc != nil && !strings.HasSuffix(file, "_test.go") {
			return strings.Join(strings.Fields(parsed.Doc.Text()), " "), nil
		}
	}
	return "", fmt.Errorf("no package comment")
}

var (
	versionsOfLibrary = regexp.MustCompile(`Tested with (v[0-9]\S*)(?: to (v[0-9]\S*))? of (\S+)\.(?: |$)`)
	versionsOfGo      = regexp.MustCompile(`Tested with Go ([0-9]\S*) to ([0-9]\S*[0-9])\.(?: |$)`)
)

// parseVersions finds the sentence in a package comment that documents the versions.
func parseVersions(comment string) (adapter, error) {
	if m := versionsOfGo.FindStringSubmatch(comment); m != nil {
		return adapter{library: standard, oldest: m[1], newest: m[2]}, nil
	}
	m := versionsOfLibrary.FindStringSubmatch(comment)
	if m == nil {
		return adapter{}, fmt.Errorf("the package comment does not say which versions were tested")
	}
	a := adapter{library: m[3], oldest: m[1], newest: m[2]}
	if a.newest == "" {
		a.newest = a.oldest
	}
	return a, nil
}

// required returns the version required in go.mod. No user can have an older version.
func (a adapter) required() string {
	if a.library == standard {
		return a.module.Go
	}
	for _, r := range a.module.Require {
		if r.Path == a.library {
			return r.Version
		}
	}
	return ""
}

// modules returns the library and the modules released with it, such as its SDK.
func (a adapter) modules() []string {
	paths := []string{a.library}
	for _, r := range a.module.Require {
		if strings.HasPrefix(r.Path, a.library+"/") {
			paths = append(paths, r.Path)
		}
	}
	return paths
}
