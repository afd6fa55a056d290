// Texts copies the texts in Go files for a prose check: their comments, and their string
// literals with several words, such as messages and help texts.
//
//	go run ./scripts/texts DIRECTORY
//
// It writes DIRECTORY/PATH.md for each Go file in the repository. Each text is on the same
// line as in the Go file, so that a finding names the right line.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: texts DIRECTORY")
		os.Exit(2)
	}
	if err := copyTexts(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "texts:", err)
		os.Exit(1)
	}
}

func copyTexts(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && len(d.Name()) > 1 && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines, err := texts(path, text)
		if err != nil {
			return err
		}
		out := filepath.Join(to, path+".md")
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		return os.WriteFile(out, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	})
}

// texts returns a Go file's lines with its texts only.
func texts(path string, source []byte) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	sourceLines := strings.Split(string(source), "\n")
	lines := make([]string, len(sourceLines))
	for _, group := range file.Comments {
		for _, c := range group.List {
			at := set.Position(c.Pos())
			trailing := strings.TrimSpace(sourceLines[at.Line-1][:at.Column-1]) != ""
			addComment(lines, at.Line, c.Text, trailing)
		}
	}
	if strings.HasSuffix(path, "_test.go") {
		return lines, nil // the literals are data
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			addLiteral(lines, set.Position(l.Pos()).Line, l.Value)
		}
		return true
	})
	return lines, nil
}

// addComment adds a line comment without its slashes. A comment after code is a sentence.
// Directives and examples' expected output are no prose.
func addComment(lines []string, line int, comment string, trailing bool) {
	text, ok := strings.CutPrefix(comment, "// ")
	if !ok || strings.HasPrefix(text, "Output:") {
		return
	}
	if trailing {
		text = sentence(text)
	}
	lines[line-1] = text
}

// sentence returns a text with an end, so it cannot continue in the next line.
func sentence(text string) string {
	if text == "" || strings.ContainsAny(text[len(text)-1:], ".:?!") {
		return text
	}
	return text + "."
}

// addLiteral adds a string literal if it is a text: at least four words in letters. SQL is no text.
// Each text is a list item, so it cannot continue an earlier line.
func addLiteral(lines []string, line int, literal string) {
	text, err := strconv.Unquote(literal)
	if err != nil || len(strings.Fields(text)) < 4 || strings.HasPrefix(text, "\ncreate table ") {
		return
	}
	if lines[line-1] == "" {
		lines[line-1] = "-"
	}
	if !strings.HasPrefix(literal, "`") {
		lines[line-1] += " " + sentence(strings.ReplaceAll(text, "\n", " "))
		return
	}
	for i, part := range strings.Split(text, "\n") {
		if row := strings.TrimLeft(part, " "); row != part {
			part = "- " + row // in a table or an example
		}
		if i == 0 {
			part = " " + part
		}
		lines[line-1+i] += part
	}
}
