package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Help is read on terminals, which have 80 columns.
func TestHelpFits(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	root := a.root()
	root.InitDefaultHelpCmd()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		var text bytes.Buffer
		c.SetOut(&text)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > 80 {
				t.Errorf("%s: %d letters: %s", c.CommandPath(), utf8.RuneCountInString(line), line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// Each verb is in the list that people read.
func TestNoSubcommandIsHidden(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	for _, c := range a.root().Commands() {
		if c.Hidden {
			t.Errorf("%s is hidden", c.Name())
		}
	}
}

// What elect never exits with is not promised.
func TestElectionIsNeverBusy(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	long := a.electCmd().Long
	if strings.Contains(long, "75") || !strings.Contains(long, "\n    76 ") {
		t.Errorf("have %s", long)
	}
}
