package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCmd writes the manual pages, for packagers and for manual installation.
func manCmd() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man --dir DIR",
		Short: "Write the manual pages",
		Long: `Write a manual page for each subcommand to a directory. The output depends only
on the revision of dibs.`,
		Example: `  dibs man --dir /usr/local/share/man/man1
  dibs man --dir . && man ./dibs-run.1`,
		Args: argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				return usage("man: no --dir: pass the directory for the pages")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			v := versionOf(debug.ReadBuildInfo())
			disableDateTag(c.Root())
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Date: v.date(), Source: "dibs", Manual: "dibs"}, dir)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "directory `DIR` for the pages")
	return c
}

// date returns the date of the revision, or a fixed one if that is unknown.
func (v version) date() *time.Time {
	at, err := time.Parse(time.RFC3339, v.Time)
	if err != nil {
		at = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	at = at.UTC()
	return &at
}

// disableDateTag keeps the current date out of the pages.
func disableDateTag(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		disableDateTag(sub)
	}
}
