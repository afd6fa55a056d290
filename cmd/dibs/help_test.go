package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// The help fits into 80 columns.
func TestHelpFits(t *testing.T) {
	a := newApp(new(console), nil)
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
				t.Errorf("%s: %d columns: %s", c.CommandPath(), utf8.RuneCountInString(line), line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// If a subcommand works on each server kind, its help must name all kinds.
func TestHelpNamesAllServers(t *testing.T) {
	a := newApp(new(console), nil)
	for _, c := range []*cobra.Command{a.root(), doctorCmd(a)} {
		for _, server := range []string{"Redis", "PostgreSQL", "MariaDB", "MySQL", "etcd", "ZooKeeper"} {
			if !strings.Contains(c.Long, server) {
				t.Errorf("%s: %s is missing", c.Name(), server)
			}
		}
	}
	if !strings.Contains(doctorCmd(a).Example, "mysql://") {
		t.Error("doctor: no example with mysql://")
	}
}

// All subcommands are listed in the help.
func TestNoSubcommandIsHidden(t *testing.T) {
	a := newApp(new(console), nil)
	for _, c := range a.root().Commands() {
		if c.Hidden {
			t.Errorf("%s is hidden", c.Name())
		}
	}
}

// elect's help does not list exit code 75: elect waits without limit.
func TestElectionIsNeverBusy(t *testing.T) {
	a := newApp(new(console), nil)
	long := electCmd(a).Long
	if strings.Contains(long, "75") || !strings.Contains(long, "\n    76 ") {
		t.Errorf("have %s", long)
	}
}
