package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/spf13/cobra"
)

// completeName completes a name from the held names. If the store does not answer within 1 s, it
// offers nothing and prints no error: a shell waiting for it would seem to hang.
func (f *storeFlags) completeName(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const timeout = time.Second
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f.prefixSet = c.Flags().Changed("prefix")
	found := make(chan []string, 1)
	go func() { found <- f.namesWithPrefix(begun, timeout) }()
	select {
	case names := <-found:
		return names, cobra.ShellCompDirectiveNoFileComp
	case <-time.After(timeout):
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesWithPrefix lists the printable names that begin with begun.
func (f *storeFlags) namesWithPrefix(begun string, timeout time.Duration) (names []string) {
	s, err := f.open(untilExit)
	if err != nil {
		return nil
	}
	defer func() { _ = s.close() }() // only reads were made
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	all, _ := s.List(ctx, escapeGlob(begun)+"*") // nil on failure
	for _, name := range all {
		if view.Safe(name) == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// escapeGlob returns a glob that only matches text.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}
