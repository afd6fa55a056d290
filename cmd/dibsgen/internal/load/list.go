package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// listed is a package as the go command lists it.
type listed struct {
	ImportPath     string
	Dir            string
	Name           string
	GoFiles        []string
	CgoFiles       []string
	InvalidGoFiles []string // also among the others, or not
	IgnoredGoFiles []string
	TestGoFiles    []string
	XTestGoFiles   []string
	ImportMap      map[string]string
	Module         struct{ GoVersion string }
	Standard       bool
	Error          *struct{ Pos, Err string }
}

const fields = "ImportPath,Dir,Name,GoFiles,CgoFiles,InvalidGoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,ImportMap,Module,Standard,Error"

// files yields the names of all Go files, in the order of their names for each use.
func (l *listed) files() func(yield func(name string, use Use) bool) {
	return func(yield func(string, Use) bool) {
		for _, group := range []struct {
			names []string
			use   Use
		}{
			{slices.Concat(l.GoFiles, l.CgoFiles, l.InvalidGoFiles), Built},
			{slices.Concat(l.TestGoFiles, l.XTestGoFiles), Test},
			{l.IgnoredGoFiles, Excluded},
		} {
			slices.Sort(group.names)
			for _, name := range group.names {
				use := group.use
				switch {
				case name[0] == '_' || name[0] == '.': // the go command never reads it
					continue
				case strings.HasSuffix(name, "_test.go"):
					use = Test
				}
				if !yield(name, use) {
					return
				}
			}
		}
	}
}

// list runs go list in a directory. It returns an error only if the go command cannot list
// anything; a package that was not found contains its Error.
func list(ctx context.Context, dir string, args ...string) ([]*listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-json=" + fields}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var all []*listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		l := new(listed)
		switch err := decoder.Decode(l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}
