package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeName offers the names that are held. A shell that waits for a store that is away
// would seem to hang, and there is nobody to tell: it is silent then.
func (a *app) completeName(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const patience = time.Second
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.prefixSet = c.Flags().Changed("prefix")
	found := make(chan []string, 1)
	go func() { found <- a.namesWithPrefix(begun, patience) }()
	select {
	case names := <-found:
		return names, cobra.ShellCompDirectiveNoFileComp
	case <-time.After(patience):
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// beginning lists the names that begin so, and can be shown.
func (a *app) namesWithPrefix(begun string, patience time.Duration) (names []string) {
	s, err := a.open()
	if err != nil {
		return nil
	}
	defer func() { _ = s.close() }() // nothing can be lost by it
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all, _ := s.List(ctx, escapeGlob(begun)+"*") // none, if it failed
	for _, name := range all {
		if safe(name) == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// literal makes a text match itself in a glob.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}
