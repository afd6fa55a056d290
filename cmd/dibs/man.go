package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
			return writePages(c.Root(), dir, versionOf(debug.ReadBuildInfo()).date())
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "directory `DIR` for the pages")
	return c
}

// date returns the revision's date, or a fixed date if it is unknown.
func (v version) date() time.Time {
	at, err := time.Parse(time.RFC3339, v.Time)
	if err != nil {
		at = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return at.UTC()
}

// writePages writes the pages for a subcommand and those below it.
func writePages(c *cobra.Command, dir string, date time.Time) error {
	c.InitDefaultHelpFlag()
	file := filepath.Join(dir, pageName(c)+".1")
	if err := os.WriteFile(file, []byte(pageOf(c, date)), 0o644); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := writePages(sub, dir, date); err != nil {
				return err
			}
		}
	}
	return nil
}

// pageName returns a page's name, without its section: dibs-run.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// pageOf returns a subcommand's page, in the language of man(7).
//
// It does not use cobra's package doc: the Markdown and YAML packages it needs would cost each
// start of dibs 0.5 ms.
func pageOf(c *cobra.Command, date time.Time) string {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n%s", title, text)
		}
	}
	name := pageName(c)
	fmt.Fprintf(&b, ".TH %s 1 \"%s\" dibs dibs\n.nh\n.ad l\n", strings.ToUpper(escaped(name)), date.Format("Jan 2006"))
	section("NAME", escaped(name)+` \- `+escaped(c.Short)+"\n")
	section("SYNOPSIS", `\fB`+escaped(c.UseLine())+"\\fR\n")
	section("DESCRIPTION", verbatim(c.Long))
	section("OPTIONS", optionsOf(c.NonInheritedFlags()))
	section("GLOBAL OPTIONS", optionsOf(c.InheritedFlags()))
	section("EXAMPLES", verbatim(c.Example))
	section("SEE ALSO", seeAlso(c))
	return b.String()
}

// verbatim returns an already formatted text.
func verbatim(text string) string {
	if text == "" {
		return ""
	}
	return ".nf\n" + escaped(text) + "\n.fi\n"
}

func optionsOf(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(&b, `\fB\-%s\fR, `, f.Shorthand)
		}
		fmt.Fprintf(&b, "\\fB\\-\\-%s\\fR", escaped(f.Name))
		if value != "" {
			fmt.Fprintf(&b, ` \fI%s\fR`, escaped(value))
		}
		b.WriteString("\n" + escaped(text+defaultOf(f)) + "\n")
	})
	return b.String()
}

// defaultOf returns the part of the help after a flag's text: its default, or nothing.
func defaultOf(f *pflag.Flag) string {
	only := pflag.NewFlagSet("", pflag.ContinueOnError)
	only.AddFlag(f)
	_, text := pflag.UnquoteUsage(f)
	_, rest, _ := strings.Cut(only.FlagUsages(), text)
	return strings.TrimSuffix(rest, "\n")
}

// seeAlso returns the pages for the subcommands below c and for its parent.
func seeAlso(c *cobra.Command) string {
	var pages []string
	if c.HasParent() {
		pages = append(pages, `\fB`+escaped(pageName(c.Parent()))+`\fR(1)`)
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, `\fB`+escaped(pageName(sub))+`\fR(1)`)
		}
	}
	if len(pages) == 0 {
		return ""
	}
	return strings.Join(pages, ",\n") + "\n"
}

// escaped returns a text for man(7). It escapes backslashes and hyphens, and dots and quotes at the
// begin of a line, which would be requests.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
