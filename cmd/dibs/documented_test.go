package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each dibs command line in the documents' code blocks and tables should use an existing subcommand
// and existing flags.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	found := 0
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range documentedCommands(string(text)) {
			found++
			root := newApp(&console{}, nil).root()
			root.InitDefaultCompletionCmd()
			root.InitDefaultHelpCmd()
			c, rest, err := root.Find(words)
			if err == nil {
				err = c.ParseFlags(rest)
			}
			// A text may name a flag without its value.
			if c == root || err != nil && !strings.Contains(err.Error(), "flag needs an argument") {
				t.Errorf("%s: dibs %s: %v", filepath.Base(file), strings.Join(words, " "), err)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands found", found)
	}
}

// code matches a code block, or code in a line.
var code = regexp.MustCompile("(?s)```.*?\n```|`[^`\n]+`")

// commandInCode matches a dibs command line up to the command that it runs, or to the end.
var commandInCode = regexp.MustCompile("(?m)(?:^|[`;(\"] ?|bin/)dibs ([a-z]+(?: +[^\\s`;|&<>()#]+)*)")

func documentedCommands(text string) (all [][]string) {
	for _, block := range code.FindAllString(text, -1) {
		for _, m := range commandInCode.FindAllStringSubmatch(block, -1) {
			words := strings.Fields(m[1])
			if end := slices.Index(words, "--"); end >= 0 {
				words = words[:end]
			}
			for i, word := range words {
				if word == "N" { // stands for a number
					words[i] = "1"
				}
			}
			all = append(all, words)
		}
	}
	return all
}
