package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/generate"
	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

// command runs dibsgen once.
type command struct {
	dir            string // where the packages and the printed paths begin
	check          bool
	tags           string
	stdout, stderr io.Writer
}

// Errors whose details have been printed.
var (
	errStale    = errors.New("files are stale")
	errProblems = errors.New("wrong directives")
)

// generate generates the packages' files, or checks them. If any directive is wrong, it prints all
// problems and changes no file.
func (c *command) generate(ctx context.Context, patterns []string) error {
	loader := load.New(c.dir, c.tags)
	packages, dirs, err := loader.Packages(ctx, patterns...)
	if err != nil {
		return err
	}
	var imports []string
	for _, p := range packages {
		imports = append(imports, generate.Imports(loader, p)...)
	}
	if err := loader.ListImports(ctx, packages, imports...); err != nil {
		return err
	}
	var all generate.Result
	for _, p := range packages {
		one := generate.Package(loader, p)
		all.Files = append(all.Files, one.Files...)
		all.Kept = append(all.Kept, one.Kept...)
		all.Problems = append(all.Problems, one.Problems...)
		all.Notices = append(all.Notices, one.Notices...)
	}
	c.print(all.Notices)
	if c.print(all.Problems); len(all.Problems) > 0 {
		return errProblems
	}
	changes, err := planChanges(all, dirs)
	if err != nil {
		return err
	}
	return c.apply(changes)
}

// print prints problems or notices in the files' order.
func (c *command) print(problems []generate.Problem) {
	for _, p := range generate.SortProblems(problems) {
		at := p.At
		at.Filename = c.relative(at.Filename)
		fmt.Fprintf(c.stderr, "%s: %s\n", at, p.Text)
	}
}

// relative returns a path relative to the command's directory.
func (c *command) relative(path string) string {
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(short) {
		return short
	}
	return path
}

// apply makes the changes, or prints them for -check.
func (c *command) apply(changes []change) error {
	for _, change := range changes {
		name := c.relative(change.name)
		if c.check {
			fmt.Fprintf(c.stdout, "%s: %s\n", name, change.stale())
			continue
		}
		if err := change.apply(); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s: %s\n", name, change.done())
	}
	if c.check && len(changes) > 0 {
		fmt.Fprintln(c.stdout, "run dibsgen, or go generate, and commit the result")
		return errStale
	}
	return nil
}
