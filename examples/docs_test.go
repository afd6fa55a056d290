// Package examples checks the documents' programs.
package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	program  = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")
	function = regexp.MustCompile("(?s)```go\n(func .*?)```")
)

// Each program in README.md and docs/ should compile in an empty module that uses a clone, as
// README.md says, together with its page's functions.
func TestProgramsOfTheDocumentsCompile(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		functions := ""
		for _, match := range function.FindAllStringSubmatch(string(text), -1) {
			functions += "\n" + match[1]
		}
		for i, match := range program.FindAllStringSubmatch(string(text), -1) {
			found++
			t.Run(fmt.Sprint(filepath.Base(page), i), func(t *testing.T) {
				t.Parallel()
				compile(t, root, match[1]+functions)
			})
		}
	}
	if found < 3 {
		t.Errorf("%d programs found", found)
	}
}

// compile builds a program in its own module.
func compile(t *testing.T, root, source string) {
	t.Helper()
	dir := t.TempDir()
	sums, err := os.ReadFile("go.sum") // so that the test needs no network
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.go": source, "go.work.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{
		"go mod init example.com/new",
		"go work init . " + root + " " + filepath.Join(root, "goredisstore"),
		"go vet .",
	} {
		args := strings.Fields(command)
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=", "PWD="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}
