package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is how many letters a line of the help has at most: the least that a terminal
// has.
const helpWidth = 80

// narrow keeps the help within the width of a terminal. The flags that all verbs share are
// explained once, by dibs --help.
func limitHelpWidth(root *cobra.Command) {
	cobra.AddTemplateFunc("flags", func(c *cobra.Command) string {
		return strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(helpWidth), "\n")
	})
	usage := root.UsageTemplate()
	usage = strings.ReplaceAll(usage, "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flags .}}")
	global := "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	usage = strings.ReplaceAll(usage, global, "  --url --local --prefix --replicas --longest --timeout --json --quiet\n  see: dibs --help")
	root.SetUsageTemplate(usage)
}
