package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dibslock/dibs/cmd/dibsgen/internal/generate"
	"github.com/dibslock/dibs/cmd/dibsgen/internal/load"
)

// change is a generated file with outdated content.
type change struct {
	name   string
	code   []byte // nil if the file is to be removed
	exists bool
}

// planChanges compares the generated files with the existing files, in the order of their names.
func planChanges(result generate.Result, dirs []string) (changes []change, err error) {
	wanted := map[string]bool{}
	for _, name := range result.Kept {
		wanted[name] = true
	}
	for _, file := range result.Files {
		wanted[file.Name] = true
		old, err := os.ReadFile(file.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			changes = append(changes, change{name: file.Name, code: file.Code})
		case err != nil:
			return nil, err
		case !bytes.Equal(old, file.Code):
			changes = append(changes, change{name: file.Name, code: file.Code, exists: true})
		}
	}
	for _, dir := range dirs {
		names, err := leftovers(dir, wanted)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			changes = append(changes, change{name: name, exists: true})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.name, b.name) })
	return changes, nil
}

// leftovers returns a directory's generated files that are not wanted any more.
func leftovers(dir string, wanted map[string]bool) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if !entry.Type().IsRegular() || wanted[name] || !strings.HasSuffix(name, load.Suffix) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if load.Generated(name, text) {
			names = append(names, name)
		}
	}
	return names, nil
}

// stale describes the file's problem.
func (c change) stale() string {
	switch {
	case c.code == nil:
		return "left over: no directives"
	case c.exists:
		return "stale"
	}
	return "missing"
}

// done describes the change that apply made.
func (c change) done() string {
	if c.code == nil {
		return "removed: no directives"
	}
	return "written"
}

// apply writes or removes the file. A reader sees the old file or the new file, never a part.
func (c change) apply() (err error) {
	if c.code == nil {
		return os.Remove(c.name)
	}
	mode := fs.FileMode(0o666) // less the process's mask
	if old, err := os.Stat(c.name); err == nil {
		mode = old.Mode().Perm()
	}
	// The go command ignores names with a dot first.
	temporary := filepath.Join(filepath.Dir(c.name), "."+filepath.Base(c.name)+"."+rand.Text())
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(c.code)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary, c.name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}
