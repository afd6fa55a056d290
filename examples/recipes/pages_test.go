// Package recipes checks the pages in docs/recipes against the code that they show.
package recipes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const pages = "../../docs/recipes"

var (
	block = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	link  = regexp.MustCompile(`\]\(\.\./\.\./examples/recipes/(\w+)\)`)
)

// Each Go block in a page consists of whole lines from a single file in the package linked by the
// page. So the page's code is compiled, and the package's tests run it.
func TestPagesShowTestedCode(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(pages + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	index := read(t, pages+"/README.md")
	shown := map[string]bool{}
	for _, name := range names {
		page := filepath.Base(name)
		if page == "README.md" {
			continue
		}
		if !strings.Contains(index, "]("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
		text := read(t, name)
		found := link.FindStringSubmatch(text)
		if found == nil {
			t.Errorf("%s has no link to its package", page)
			continue
		}
		shown[found[1]] = true
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			checkBlocks(t, text, found[1])
		})
	}
	for _, folder := range packages(t) {
		if !shown[folder] {
			t.Errorf("no page shows the package %s", folder)
		}
	}
}

// checkBlocks looks for a page's Go blocks in a folder's files.
func checkBlocks(t *testing.T, page, folder string) {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Error("there is no Go block")
	}
	for _, b := range blocks {
		if !inOneOf(t, files, b[1]) {
			t.Errorf("no file of %s has these lines:\n%s", folder, b[1])
		}
	}
}

// inOneOf reports whether a file contains a block's lines in sequence.
func inOneOf(t *testing.T, files []string, lines string) bool {
	t.Helper()
	for _, file := range files {
		if strings.Contains("\n"+read(t, file), "\n"+lines) {
			return true
		}
	}
	return false
}

// packages returns the folders that contain a package.
func packages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, file := range files {
		folders = append(folders, filepath.Dir(file))
	}
	return folders
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
