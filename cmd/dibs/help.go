package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is the longest help line in columns: a terminal's usual width.
const helpWidth = 80

// limitHelpWidth wraps all subcommands' help at helpWidth. It lists the flags shared by all
// subcommands by name only: dibs --help explains them.
//
// It uses no cobra template: with package text/template the linker must keep all libraries'
// methods, 10 MB.
func limitHelpWidth(root *cobra.Command) {
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := io.WriteString(c.OutOrStderr(), usageOf(c))
		return err
	})
}

func usageOf(c *cobra.Command) string {
	text := "Usage:"
	if c.Runnable() {
		text += "\n  " + c.UseLine()
	}
	if c.HasAvailableSubCommands() {
		text += "\n  " + c.CommandPath() + " [command]"
	}
	text += "\n"
	if c.HasExample() {
		text += "\nExamples:\n" + c.Example + "\n"
	}
	text += subcommandsOf(c)
	if c.HasAvailableLocalFlags() {
		text += "\nFlags:\n" + strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(helpWidth), "\n") + "\n"
	}
	if c.HasAvailableInheritedFlags() {
		text += "\nGlobal Flags:\n  --url --local --prefix --replicas --shared-keys --redisson --max-ttl --timeout\n  --json --quiet\n  see: dibs --help\n"
	}
	if c.HasAvailableSubCommands() {
		text += fmt.Sprintf("\nUse %q for more information about a command.\n", c.CommandPath()+" [command] --help")
	}
	return text
}

// subcommandsOf lists the subcommands by groups.
func subcommandsOf(c *cobra.Command) (text string) {
	groups := slices.Clone(c.Groups())
	switch {
	case len(groups) == 0:
		groups = append(groups, &cobra.Group{Title: "Available Commands:"})
	case !c.AllChildCommandsHaveGroup():
		groups = append(groups, &cobra.Group{Title: "Additional Commands:"})
	}
	for _, group := range groups {
		list := ""
		for _, sub := range c.Commands() {
			if sub.GroupID == group.ID && (sub.IsAvailableCommand() || sub.Name() == "help") {
				list += fmt.Sprintf("  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
		if list != "" {
			text += "\n" + group.Title + "\n" + list
		}
	}
	return text
}
