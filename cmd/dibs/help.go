package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is the longest line of the help in columns: the usual width of a terminal.
const helpWidth = 80

// limitHelpWidth wraps the help of all subcommands at helpWidth. It lists the flags that
// all subcommands share by name only: dibs --help explains them.
func limitHelpWidth(root *cobra.Command) {
	cobra.AddTemplateFunc("flags", func(c *cobra.Command) string {
		return strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(helpWidth), "\n")
	})
	usage := root.UsageTemplate()
	usage = strings.ReplaceAll(usage, "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flags .}}")
	global := "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	usage = strings.ReplaceAll(usage, global, "  --url --local --prefix --replicas --mixed --redisson --longest --timeout\n  --json --quiet\n  see: dibs --help")
	root.SetUsageTemplate(usage)
}
