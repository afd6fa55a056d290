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

var block = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Each Go block of a page consists of whole lines of one file of its package. So the code of
// the page is compiled, and the tests of the package run it.
func TestPagesShowTestedCode(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(pages + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, name := range names {
		page := filepath.Base(name)
		if page == "README.md" {
			continue
		}
		folder := strings.ReplaceAll(strings.TrimSuffix(page, ".md"), "-", "")
		shown[folder] = true
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			checkPage(t, read(t, name), folder)
		})
	}
	for _, folder := range packages(t) {
		if !shown[folder] {
			t.Errorf("%s has no page", folder)
		}
	}
	index := read(t, pages+"/README.md")
	for _, name := range names {
		if page := filepath.Base(name); page != "README.md" && !strings.Contains(index, "]("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
	}
}

// checkPage checks one page, whose package is in a folder.
func checkPage(t *testing.T, page, folder string) {
	t.Helper()
	if !strings.Contains(page, "](../../examples/recipes/"+folder+")") {
		t.Errorf("there is no link to the package %s", folder)
	}
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
			t.Errorf("no file of %s contains this block:\n%s", folder, b[1])
		}
	}
}

// inOneOf reports whether the lines of a block follow each other in one of the files.
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
